#!/usr/bin/env python3
"""Computes the tables of lorry/kernels/cpu/common/vec_tables.h in 90 digits from the middles that stand there, and
compares them with it.

    tools/erf_tables.py            # exit status 1 if the file holds other tables
    tools/erf_tables.py --print    # the table of f64 as it stands in the file

For f64 all coefficients must be the rounded ones of the polynomials that interpolate erf at Chebyshev's points. Those
of f32 were moved in their last bits by a search, so the file is their only source; their polynomials must be near
erf(u / sqrt(2)) / 2.
"""
import re
import sys
from decimal import Decimal, getcontext
from fractions import Fraction
from pathlib import Path

FILE = Path(__file__).resolve().parents[1] / "lorry" / "kernels" / "cpu" / "common" / "vec_tables.h"
WIDTH, DEGREE, INTERVALS = Fraction(49, 128), 13, 16  # of f64
HALF_WIDTH, HALF_INTERVALS = Fraction(3, 16), 32  # of f32
# The largest distance of a polynomial of f32 from its function, in units of the last place of a result in [1/4, 1/2).
FARTHEST = 0.25
PI = Decimal("3.14159265358979323846264338327950288419716939937510582097494459230781640628620899862803482534211706798")
getcontext().prec = 90


def decimal(x):
    return Decimal(x.numerator) / Decimal(x.denominator) if isinstance(x, Fraction) else Decimal(x)


def erf(x):
    """By its series (Abramowitz and Stegun, 7.1.6), whose terms are all positive."""
    term = total = x
    n = 0
    while abs(term) > Decimal("1e-88"):
        n += 1
        term = term * 2 * x * x / (2 * n + 1)
        total += term
    return 2 * total * (-x * x).exp() / PI.sqrt()


def cosine(x):
    term = total = Decimal(1)
    n = 0
    while abs(term) > Decimal("1e-88"):
        n += 2
        term = -term * x * x / (n * (n - 1))
        total += term
    return total


def interpolated(function, low, high, count):
    """Coefficients, lowest first, of the polynomial through `count` Chebyshev points, by divided differences."""
    xs = [(low + high) / 2 + (high - low) / 2 * cosine(PI * (2 * k + 1) / (2 * count)) for k in range(count)]
    divided = [function(x) for x in xs]
    for order in range(1, count):
        for i in reversed(range(order, count)):
            divided[i] = (divided[i] - divided[i - 1]) / (xs[i] - xs[i - order])
    out = [divided[-1]]
    for i in reversed(range(count - 1)):
        out = [a - xs[i] * b for a, b in zip([Decimal(0), *out], [*out, Decimal(0)])]
        out[0] += divided[i]
    return out


def erf_coefficients(n, middle):
    """Of erf in the distance from the middle of interval n. That of interval 0 is odd, and like that of interval 1 less
    the argument itself."""
    half, at = decimal(WIDTH / 2), decimal(n * WIDTH)
    if n == 0:
        slope = 2 / PI.sqrt()
        out = interpolated(lambda d: (erf(d) / d if d else slope) - 1, -half, half, DEGREE)
        return [x if i % 2 else Decimal(0) for i, x in enumerate([Decimal(0), *out])]
    m = Decimal(middle)
    out = interpolated(lambda d: erf(m + d), at - half - m, at + half - m, DEGREE + 1)
    out[0] = erf(m)
    if n == 1:
        out[0] -= m
        out[1] -= 1
    return out


def table(text, name):
    """The rows of numbers of an array."""
    body = re.search(rf"\b{name}\b[^=]*=(.*?);", text, re.DOTALL).group(1)
    numbers = r"-?0x[0-9a-f.]+p[+-]?\d+f?|\b0\b"
    rows = re.findall(r"\{([^{}]*)\}", body)
    return [[float.fromhex(x.rstrip("f") if "p" in x else x) for x in re.findall(numbers, row)] for row in rows]


def distance_of_half(middle, coefficients, n):
    """The largest one seen in interval n, in units of the last place. Arguments end in the last interval's middle."""
    worst = Decimal(0)
    for i in range(33):
        at = n - Fraction(1, 2) + Fraction(i, 32)
        u = decimal(min(max(at, Fraction(0)), Fraction(HALF_INTERVALS - 1)) * HALF_WIDTH)
        d, got = u - Decimal(middle), Decimal(0)
        for c in reversed(coefficients):
            got = got * d + Decimal(c)
        worst = max(worst, abs(got - erf(u / Decimal(2).sqrt()) / 2))
    return float(worst * 2**25)


def main(arguments):
    text = FILE.read_text()
    (middles,), columns = table(text, "kErfMiddle"), table(text, "kErf")
    computed = [erf_coefficients(n, middles[n]) for n in range(INTERVALS)]
    wanted = [[float(x[power]) for x in computed] for power in range(DEGREE + 1)]
    if arguments == ["--print"]:
        print(",\n".join("{" + ", ".join(x.hex() if x else "0" for x in row) + "}" for row in wanted))
        return 0
    if wanted != columns:
        wrong = sum(a != b for want, row in zip(wanted, columns) for a, b in zip(want, row))
        print(f"erf_tables.py: {wrong} coefficients of kErf are others; run it with --print", file=sys.stderr)
        return 1
    (middles,), columns = table(text, "kHalfErfMiddle"), table(text, "kHalfErf")
    far = {n: x for n in range(HALF_INTERVALS)
           if (x := distance_of_half(middles[n], [row[n] for row in columns], n)) > FARTHEST}
    if far:
        print(f"erf_tables.py: polynomials of kHalfErf are too far from their function: {far}", file=sys.stderr)
    return 1 if far else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
