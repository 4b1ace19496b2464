"""What counts as slower or faster than a peer, for the script that measures and the tables that show it."""

LEAST = 0.95  # of the peer's speed: below that a case is slower


def verdict(speedups):
    """Of [low, median, high] of each run, the peer's time over Lorry's: "slower" or "faster" where all that lies from
    low to high says so in every run, else "equal"; "alone" without runs, for what the peer does not have."""
    if not speedups:
        return "alone"
    if all(high < LEAST for _, _, high in speedups):
        return "slower"
    return "faster" if all(low > 1 / LEAST for low, _, _ in speedups) else "equal"
