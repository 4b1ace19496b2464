"""The structure check must fail on every kind of violation: each test plants one in an otherwise sound tree."""
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

SCRIPT = Path(__file__).resolve().parents[2] / "tools" / "check_includes.py"

SOUND = {
    "lorry/base/error.h": "#pragma once\n#include <string>\n",
    "lorry/base/macros.h": "#pragma once\n",
    "lorry/base/CMakeLists.txt": "lorry_room(base SOURCES error.cpp DEPENDS fmt::fmt)\n",
    "lorry/formula/silu.h": '#include "lorry/base/macros.h"\n#include "lorry/formula/exp.h"\n',
    "lorry/kernels/cpu/add.cpp": '#include "lorry/base/error.h"\n#include "lorry/kernels/add.h"\n',
    "lorry/kernels/CMakeLists.txt": "lorry_room(kernels SOURCES cpu/add.cpp DEPENDS lorry::base lorry::formula)\n",
    "lorry/bench/memory.cpp": '#include "lorry/profile/benchmark.h"\n',
    "lorry/cli/main.cpp": '#include "lorry/bench/suites.h"\n#include "lorry/kernels/add.h"\n',
}


class CheckIncludes(unittest.TestCase):
    def check(self, changes):
        """Runs the script over the sound tree with `changes` applied: exit status and output."""
        with tempfile.TemporaryDirectory() as folder:
            for name, text in {**SOUND, **changes}.items():
                path = Path(folder, name)
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(text)
            done = subprocess.run([sys.executable, SCRIPT, folder], capture_output=True, text=True)
            return done.returncode, done.stdout

    def assert_refused(self, changes, *said):
        status, output = self.check(changes)
        self.assertEqual(status, 1, output)
        for text in said:
            self.assertIn(text, output)

    def test_a_sound_tree_passes(self):
        self.assertEqual(self.check({}), (0, ""))

    def test_an_include_of_a_lower_room_is_refused(self):
        self.assert_refused({"lorry/base/error.h": '\n#include "lorry/ops/dispatch/door.h"\n'},
                            "lorry/base/error.h:2:", "base may not use ops")

    def test_an_angled_include_of_a_lower_room_is_refused(self):
        self.assert_refused({"lorry/kernels/cpu/add.cpp": "#include <lorry/nn/gpt.h>\n"}, "kernels may not use nn")

    def test_backends_share_only_what_is_common(self):
        self.assert_refused({"lorry/kernels/cuda/list/list.cu": '#include "lorry/kernels/cpu/list/list.h"\n'},
                            "lorry/kernels/cuda/list/list.cu:1:", "lorry/kernels/cuda may not use lorry/kernels/cpu")
        self.assert_refused({"lorry/kernels/common/fold.h": '#include "lorry/kernels/cpu/add.h"\n'},
                            "lorry/kernels/common may not use lorry/kernels/cpu")
        self.assert_refused({"lorry/kernels/list.h": '#include "lorry/kernels/cuda/list/list.h"\n'},
                            "a contract may not use a backend")
        self.assert_refused({"lorry/ops/add.cpp": '#include "lorry/kernels/cpu/list/list.h"\n'},
                            "backends are reached by their tables")
        self.assertEqual(self.check({"lorry/optim/custom.h": '#include "lorry/kernels/cuda/optim/rule.h"\n'})[0], 0)

    def test_a_family_of_kernels_uses_itself_what_is_common_and_its_contract(self):
        scan = "lorry/kernels/cuda/reduce/scan.cu"
        for name in ("cuda/reduce/parts.h", "cuda/common/element.h", "cuda/table.h", "common/fold.h", "reduce.h"):
            self.assertEqual(self.check({scan: f'#include "lorry/kernels/{name}"\n'}), (0, ""))
        self.assert_refused({scan: '\n#include "lorry/kernels/cuda/sort/radix.h"\n'}, f"{scan}:2:",
                            "cuda/reduce does not build on cuda/sort")
        self.assert_refused({scan: '#include "lorry/kernels/sort.h"\n'}, "has a contract of its own, kernels/reduce.h")
        self.assert_refused({"lorry/kernels/cpu/common/load_store.h": '#include "lorry/kernels/cpu/reduce/driver.h"\n'},
                            "cpu/common does not build on cpu/reduce")

    def test_a_family_builds_on_another_where_that_is_said(self):
        radix = '#include "lorry/kernels/cuda/sort/radix.h"\n'
        self.assertEqual(self.check({"lorry/kernels/cuda/indexing/put.cu": radix}), (0, ""))

    def test_a_folder_uses_of_its_room_what_is_said(self):
        functions = '#include "lorry/ops/ops.h"\n'
        self.assertEqual(self.check({"lorry/ops/dispatch/run.cpp": functions}), (0, ""))
        self.assert_refused({"lorry/ops/dispatch/door.h": functions}, "lorry/ops/dispatch/door.h:1:",
                            "lorry/ops/dispatch may use ops/array.h")
        self.assert_refused({"lorry/optim/rules/sgd.h": '#include "lorry/optim/execution/eager.h"\n'},
                            "lorry/optim/rules may use")

    def test_files_that_include_each_other_are_refused(self):
        self.assert_refused({"lorry/nn/a.h": '#include "lorry/nn/b.h"\n', "lorry/nn/b.h": '#include "lorry/nn/c.h"\n',
                             "lorry/nn/c.h": '\n#include "lorry/nn/a.h"\n'},
                            "lorry/nn/c.h:2:",
                            "includes itself: lorry/nn/a.h > lorry/nn/b.h > lorry/nn/c.h > lorry/nn/a.h")

    def test_an_include_of_the_suites_is_refused_outside_the_command(self):
        self.assert_refused({"lorry/profile/session.h": '#include "lorry/bench/suites.h"\n'}, "nobody but the command")

    def test_an_include_of_the_profiler_is_refused_above_it(self):
        self.assert_refused({"lorry/compile/graph.h": '#include "lorry/profile/session.h"\n'}, "which stands below it")

    def test_a_room_that_does_not_exist_is_refused(self):
        self.assert_refused({"lorry/kernels/cpu/add.cpp": '#include "lorry/utils/misc.h"\n'}, "'utils' is not a room")
        self.assert_refused({"lorry/utils/misc.h": "\n"}, "'utils' is not a room")

    def test_a_relative_include_is_refused(self):
        self.assert_refused({"lorry/kernels/cpu/add.cpp": '#include "add.h"\n'}, "by its full path")

    def test_a_formula_that_includes_more_than_formulas_is_refused(self):
        self.assert_refused({"lorry/formula/silu.h": '#include "lorry/base/error.h"\n'}, "nothing but formulas")

    def test_a_link_to_a_lower_room_is_refused(self):
        room = "lorry_room(kernels SOURCES a.cpp\n  DEPENDS lorry::base lorry::nn)\n"
        self.assert_refused({"lorry/kernels/CMakeLists.txt": room},
                            "lorry/kernels/CMakeLists.txt:2:", "kernels may not use nn")

    def test_launches_that_observers_do_not_hear_of_are_refused(self):
        for call in ("cudaMemcpyAsync(to, from, n, kind, stream);", "cudaGraphLaunch(graph, stream);",
                     "cudaLaunchKernel(f, 1, 1, p, 0, s);",
                     "f<<<1, 2>>>(x);"):
            self.assert_refused({"lorry/kernels/cuda/list/list.cu": "\n" + call}, "lorry/kernels/cuda/list/list.cu:2:",
                                "lorry/device/cuda/launch.h")
            self.assertEqual(self.check({"lorry/device/cuda/launch.cpp": call})[0], 0)

    def test_a_kernel_that_does_not_wait_for_the_one_before_it_is_refused(self):
        head = "template <class T>\n__global__ void __launch_bounds__(kThreads, T{}.n)\n    fill(T* to, T value) {\n"
        waits, writes = "  lorry::cuda::begin_programmatic();\n", "  *to = value;\n"
        for file in ("lorry/kernels/cuda/list/list.cu", "tests/kernels/list_test.cu"):
            self.assertEqual(self.check({file: head + waits + writes + "}\n"})[0], 0)
            for body in (writes, writes + waits, "  // begin_programmatic();\n" + writes):
                self.assert_refused({file: head + waits + "}\n" + head + body + "}\n"}, f"{file}:7:",
                                    "begin_programmatic")
        made = 'R"(__global__ void __launch_bounds__({block}) {name}(float* to) {{\n'
        self.assertEqual(self.check({"lorry/kernels/cuda/fused/emit.cpp": made + waits + '}})"'})[0], 0)
        self.assert_refused({"lorry/kernels/cuda/fused/emit.cpp": made + writes + '}})"'}, "begin_programmatic")
        self.assert_refused({"lorry/kernels/cuda/list/list.cu": "float x = __ldg(p);\n"}, "plain pointer")

    def test_a_file_past_600_lines_is_refused(self):
        self.assertEqual(self.check({"tests/base/long_test.cpp": "\n" * 600})[0], 0)
        self.assert_refused({"tests/base/long_test.cpp": "\n" * 601}, "tests/base/long_test.cpp:601:", "second subject")

    def test_a_folder_without_rooms_is_wrong_usage(self):
        with tempfile.TemporaryDirectory() as folder:
            self.assertEqual(subprocess.run([sys.executable, SCRIPT, folder], capture_output=True).returncode, 2)


if __name__ == "__main__":
    unittest.main()
