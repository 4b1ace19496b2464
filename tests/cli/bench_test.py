"""`lorry bench` and `lorry info` from the outside: the figures that they write."""
import json
import os
import unittest

from support import CommandTest


class Figures(CommandTest):
    def figures(self, *arguments):
        self.run_lorry(*arguments, "--json", "figures.json")
        return json.loads((self.path / "figures.json").read_text())

    def test_a_case_has_what_applies_to_it(self):
        rows = {row["case"]: row for row in self.figures("bench", "overhead", "--quiet")["results"]}
        add = rows["add 64"]
        self.assertEqual(add["bytes"], 3 * 64 * 4)
        self.assertAlmostEqual(add["gb_per_s"], add["bytes"] / add["median_us"] / 1e3)
        self.assertNotIn("bytes", rows["empty 64"])
        self.assertNotIn("flops", add)

    def test_a_step_over_a_model_stands_beside_the_copy_of_its_bytes(self):
        case = "tiny-4096x1024 adamw fused, one"
        figures = self.figures("bench", "optim", "--quiet", "--filter", case)
        rows = {row["case"]: row for row in figures["results"]}
        self.assertEqual(set(rows), {"copy", "tiny-4096x1024 adamw fused, one gradient elsewhere"})
        copy, step = rows["copy"], rows["tiny-4096x1024 adamw fused, one gradient elsewhere"]
        self.assertEqual(step["bytes"], 28 * 4096 * 1024)
        ceiling = copy["gb_per_s"] / copy["ratio_to_ceiling"]
        self.assertAlmostEqual(step["ratio_to_ceiling"], step["gb_per_s"] / ceiling)
        self.assertGreaterEqual(step["extra_bytes"], 0)

    def compared(self, case):
        """The rows of a case of the suite `compile`: eager, compiled, and the first call of the compiled one."""
        rows = self.figures("bench", "compile", "--quiet", "--device", "cpu", "--filter", case)["results"]
        return {(row["case"], row["implementation"]): row for row in rows}

    def test_a_compiled_function_stands_beside_the_same_one_as_it_is(self):
        case = "20 arithmetic operators, 64 elements"
        rows = self.compared(case)
        first = (f"{case}, the first call", "lorry compiled")
        self.assertEqual(set(rows), {(case, "lorry eager"), (case, "lorry compiled"), first})
        self.assertNotIn("recordings", rows[case, "lorry eager"])
        self.assertEqual(rows[case, "lorry compiled"]["recordings"], 1)
        self.assertNotIn("bytes", rows[case, "lorry compiled"])
        self.assertGreater(rows[first]["median_us"], 0)

    def test_sizes_follow_from_two_that_were_recorded_and_make_no_variants(self):
        rows = self.compared("50 sequence lengths")
        row = rows["50 sequence lengths, 8 to 400 x 256", "lorry compiled"]
        self.assertEqual((row["recordings"], row["variants"]), (3, 1))  # 256 is also the size of the other dimension

    def test_a_suite_and_a_filter_are_chosen_among_those_named(self):
        self.assertIn("bench: a suite is missing; expected attention, compile", self.run_lorry("bench", status=2).err)
        self.refused("bench", "overhead", "--filter", "zzz",
                     says=("no case contains 'zzz'; expected a part of", "'add 64'"))

    def test_info_says_what_was_found(self):
        facts = self.figures("info")
        self.assertIn(facts["programs"]["gnuplot"], ("found", "not found"))
        self.assertNotIn("ceilings", facts)

    def test_ceilings_say_when_they_were_measured(self):
        ceilings = self.figures("info", "--remeasure")["ceilings"]["cpu"]
        self.assertRegex(ceilings["measured"], r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ$")
        self.assertFalse(ceilings["cached"])
        for name in ("copy_gb_per_s", "read_gb_per_s", "call_us", "team_launch_us", "matmul_f32_gflop_per_s"):
            self.assertGreater(ceilings[name], 0)

    def test_ceilings_are_measured_once(self):
        environment = {**os.environ, "LORRY_CACHE_DIR": str(self.path / "cache")}
        first, second = (json.loads(self.run_lorry("info", "--measure", "--json", "-", env=environment).out)
                         ["ceilings"]["cpu"] for _ in range(2))
        self.assertEqual((first.pop("cached"), second.pop("cached")), (False, True))
        self.assertEqual(first, second)

    def test_info_says_who_uses_the_memory(self):
        memory = self.figures("info")["memory"]["cpu"]
        self.assertGreater(memory["rest_of_process_bytes"], 1 << 20)
        self.assertGreater(memory["total_bytes"], memory["free_bytes"])
        self.assertGreater(memory["cache_bound_bytes"], 0)
        self.assertNotIn("context_s", memory)

    def test_stages_of_a_call_are_differences_of_calls(self):
        figures = self.figures("bench", "overhead", "--quiet", "--filter", "stage")
        rows = {row["case"]: row for row in figures["results"]}
        self.assertNotIn("difference_us", rows["stage: kernel"])
        stages = ("checks and layout", "allocation", "gradient", "announcement")
        self.assertEqual(set(rows), {"stage: kernel", *(f"stage: {name}" for name in stages)})
        for name in stages:
            row = rows[f"stage: {name}"]
            self.assertLessEqual(row["difference_low_us"], row["difference_us"])
            self.assertLessEqual(row["difference_us"], row["difference_high_us"])
            self.assertTrue(row["compared_with"])

    def report(self, name, **medians):
        row = {"suite": "s", "implementation": "lorry", "device": "cpu", "dtype": "f32"}
        rows = [{**row, "case": case, "median_us": us, "min_us": 0.9 * us, "p90_us": 1.1 * us}
                for case, us in medians.items()]
        (self.path / name).write_text(json.dumps({"schema": 1, "machine": {"cpu": name}, "results": rows}))
        return name

    def test_two_reports_are_compared(self):
        old, new = self.report("old.json", a=1.0, b=1.0, c=1.0), self.report("new.json", a=2.0, b=1.05, d=1.0)
        done = self.run_lorry("bench", "--compare", old, new, "--json", "found.json")
        self.assertTrue(done.out.startswith("machine      cpu: old.json before, new.json now"), done.out)
        found = json.loads((self.path / "found.json").read_text())
        self.assertEqual([(row["case"], row["verdict"]) for row in found["cases"]], [("a", "slower"), ("b", "same")])
        self.assertEqual([row["case"] for row in found["only_old"] + found["only_new"]], ["c", "d"])
        self.run_lorry("bench", "--compare", old, new, "--fail-above", 150)
        self.refused("bench", "--compare", old, new, "--fail-above", 50, says=("slower by 100.0 %",))
        self.run_lorry("bench", "--compare", old, new, "--fail-above", 50, "--filter", "b")

    def test_a_filter_chooses_among_all_rows_of_two_reports(self):
        old, new = self.report("old.json", ab=1.0, bc=1.0), self.report("new.json", ab=1.0, cd=1.0)
        for part, chosen in ("b", ["ab", "bc"]), ("d", ["cd"]), ("", ["ab", "bc", "cd"]):
            self.run_lorry("bench", "--compare", old, new, "--filter", part, "--json", "found.json")
            found = json.loads((self.path / "found.json").read_text())
            self.assertEqual([row["case"] for key in ("cases", "only_old", "only_new") for row in found[key]], chosen)
        self.refused("bench", "--compare", old, new, "--filter", "zzz",
                     says=("no case contains 'zzz'; expected a part of 'ab', 'bc' or 'cd'",))

    def test_a_refused_filter_lists_twenty_names(self):
        many = self.report("many.json", **{f"c{i:02}": 1.0 for i in range(25)})
        self.refused("bench", "--compare", many, many, "--filter", "zzz", says=("'c18', 'c19' or 5 more",))

    def test_what_is_no_report_is_refused(self):
        old = self.report("old.json", a=1.0)
        (self.path / "bad.json").write_text("{")
        self.refused("bench", "--compare", old, "bad.json", says=("'bad.json' is no report", "it is no JSON"))
        self.refused("bench", "--compare", old, "absent.json", says=("absent.json",))
        for arguments in (["--compare", old], ["--compare", old, old, "overhead"], ["overhead", "--fail-above", 5]):
            self.run_lorry("bench", *arguments, status=2)

    def test_an_operator_stands_beside_the_copy_of_as_many_bytes(self):
        figures = self.figures("bench", "memory", "--quiet", "--filter", "8192 x 3072")
        rows = {row["case"]: row for row in figures["results"]}
        row = rows["sum of columns 8192 x 3072 bf16"]
        self.assertEqual(row["bytes"], 2 * 8192 * 3072)
        self.assertGreater(row["ratio_to_ceiling"], 0)


if __name__ == "__main__":
    unittest.main()
