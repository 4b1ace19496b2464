"""The structure of the profiler's traces, read as files: JSON, times, nesting, arrows, counters and names."""
import re
import unittest

from traces import nanoseconds, nested, track, traces


class Structure:
    """What holds for every trace."""

    @classmethod
    def setUpClass(cls):
        cls.trace = traces()[cls.name]

    def test_slices_nest_exactly(self):
        slices = nested(self.trace)
        self.assertEqual(len(slices), len(self.trace.slices))
        self.assertTrue(any(around for *_, around in slices), "none is inside another")

    def test_slices_of_a_track_are_in_the_order_of_their_beginnings(self):
        last = {}
        for event in self.trace.slices:
            begin = nanoseconds(event["ts"])
            self.assertGreaterEqual(begin, last.get(track(event), 0))
            last[track(event)] = begin

    def test_times_are_microseconds_with_three_digits(self):
        times = re.findall(r'"(?:ts|dur)": ([^,}]*)', self.trace.path.read_text())
        arrows = sum(map(len, self.trace.arrows.values()))
        self.assertEqual(len(times), 2 * len(self.trace.slices) + len(self.trace.counters) + arrows)
        self.assertEqual([t for t in times if not re.fullmatch(r"\d+\.\d{3}", t)], [])

    def test_arrows_begin_and_end_at_slices(self):
        begins, ends = ({e["id"]: e for e in self.trace.arrows[phase]} for phase in "sf")
        self.assertEqual((len(begins), len(ends)), tuple(len(self.trace.arrows[phase]) for phase in "sf"))
        self.assertEqual(begins.keys(), ends.keys())
        starts = {(track(e), e["ts"]) for e in self.trace.slices}
        for arrow, begin in begins.items():
            self.assertLessEqual(begin["ts"], ends[arrow]["ts"])
            self.assertIn((track(begin), begin["ts"]), starts)
            self.assertIn((track(ends[arrow]), ends[arrow]["ts"]), starts)

    def test_every_track_and_process_has_a_name(self):
        threads = {track(e) for e in self.trace.labels if e["name"] == "thread_name" and e["args"]["name"]}
        processes = {e["pid"] for e in self.trace.labels if e["name"] == "process_name" and e["args"]["name"]}
        self.assertEqual({track(e) for e in self.trace.slices} - threads, set())
        self.assertEqual({e["pid"] for e in self.trace.slices + self.trace.counters} - processes, set())

    def test_memory_is_counted_and_never_negative(self):
        self.assertGreater(len(self.trace.counters), 0)
        self.assertGreaterEqual(min(e["args"]["bytes in use"] for e in self.trace.counters), 0)

    def test_there_is_nothing_else(self):
        self.assertEqual(self.trace.others, [])


class Training(Structure, unittest.TestCase):
    name = "training"

    def test_it_is_complete_and_without_arrows(self):
        self.assertIs(self.trace.all["complete"], True, self.trace.all["incomplete"])
        self.assertEqual(self.trace.arrows, {"s": [], "f": []})

    def test_calls_of_a_module_are_inside_its_forward(self):
        seen = set()
        for event, _, _, around in nested(self.trace):
            inside_backward = any("Backward" in e["args"] for e in [event, *around])
            scopes = [e["name"] for e in around if e["cat"] == "user_annotation"]
            if event["cat"] != "cpu_op" or inside_backward or not scopes:
                continue
            self.assertEqual(event["args"].get("Module"), scopes[-1])
            seen.add((event["name"], scopes[-1]))
        for call in (("linear", "block0.attention.qkv"), ("packed_attention", "block0.attention"),
                     ("gelu_tanh", "block3.mlp"), ("layer_norm", "norm"), ("embedding", "tokens")):
            self.assertIn(call, seen)

    def test_backwards_say_the_module_of_their_forward(self):
        backwards = {(e["name"], e["args"].get("Module")) for e in self.trace.slices if "Backward" in e["args"]}
        modules = {module for _, module in backwards}
        self.assertTrue({"block0.attention.qkv", "block3.mlp.down", "norm", "tokens"} <= modules, backwards)

    def test_products_cost_what_their_sizes_say(self):
        products = [e["args"] for e in self.trace.slices if e["name"] == "linear" and "Backward" not in e["args"]]
        self.assertGreater(len(products), 0)
        for args in products:
            (*rows, inner), weight = args["Input Dims"][:2]
            self.assertEqual(weight[1], inner)
            for size in rows:
                weight[0] *= size
            self.assertGreaterEqual(args["Flops"], 2 * inner * weight[0])
            self.assertGreaterEqual(args["Bytes"], 4 * inner)


class Sample(Structure, unittest.TestCase):
    name = "sample"

    def test_gpus_and_streams_are_tracks(self):
        gpu = {(e["cat"], e["args"]["device"], e["args"]["stream"]) for e in self.trace.slices if "stream" in e["args"]}
        self.assertTrue({("kernel", 0, 7), ("kernel", 0, 13), ("gpu_memcpy", 0, 7), ("gpu_memset", 0, 13),
                         ("kernel", 1, 7)} <= gpu, gpu)
        self.assertGreater(len(self.trace.arrows["s"]), 0)


if __name__ == "__main__":
    unittest.main()
