"""`lorry lessons` from the outside: the whole set on the CPU, with short measurements."""
import json
import resource
import subprocess
import unittest
import xml.dom.minidom
from html.parser import HTMLParser

from support import LORRY, CommandTest

ONCE = ("--device", "cpu", "--quiet", "--seconds", "0.005")
VOID = {"meta"}
TOO_LITTLE = 250_000_000  # bytes of address space in which the command starts, and lesson 5 has no room


class Page(HTMLParser):
    """The tags, the text, and what does not nest."""

    def __init__(self):
        super().__init__(convert_charrefs=True)
        self.open, self.tags, self.links, self.ids, self.text, self.errors = [], [], [], set(), "", []

    def handle_starttag(self, tag, attributes):
        attributes = dict(attributes)
        self.tags.append(tag)
        self.ids.add(attributes.get("id"))
        self.links += [value for name, value in attributes.items() if name in ("href", "src", "xlink:href")]
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attributes):
        self.handle_starttag(tag, attributes)
        if tag not in VOID:
            self.open.pop()

    def handle_endtag(self, tag):
        if not self.open or self.open.pop() != tag:
            self.errors.append(f"</{tag}> at {self.getpos()}")

    def handle_data(self, data):
        self.text += data


class WholeSet(CommandTest):
    @classmethod
    def setUpClass(cls):
        test = cls("test_every_lesson_is_printed_with_its_code")
        test.setUp()
        cls.addClassCleanup(test.doCleanups)
        cls.done = test.run_lorry("lessons", *ONCE, "--report", "page.html", "--json", "figures.json")
        cls.page = (test.path / "page.html").read_text("utf-8")
        cls.figures = json.loads((test.path / "figures.json").read_text())

    def test_every_lesson_is_printed_with_its_code(self):
        self.assertEqual(self.done.err, "")
        for lesson in self.figures["lessons"]:
            self.assertIn(f"{lesson['number']} {lesson['title']}\n", self.done.out)
            for comparison in lesson["comparisons"]:
                for way in comparison["ways"]:
                    for line in way["code"].splitlines():
                        self.assertIn(f"      | {line}\n", self.done.out)
        self.assertNotIn("█", self.done.out)  # bars are for terminals

    def test_figures_are_consistent(self):
        self.assertEqual(self.figures["schema"], 1)
        self.assertEqual([lesson["number"] for lesson in self.figures["lessons"]], list(range(15)))
        self.assertEqual(self.figures["device"], "cpu")
        ceilings = self.figures["ceilings"]
        self.assertGreater(ceilings["copy_bytes_per_s"], 0)
        for lesson in self.figures["lessons"]:
            self.assertNotIn("error", lesson)
            self.assertTrue(lesson["comparisons"], lesson["title"])
            for comparison in lesson["comparisons"]:
                ways = {way["name"]: way for way in comparison["ways"]}
                slow, good = ways[comparison["slow"]], ways[comparison["good"]]
                self.assertAlmostEqual(comparison["ratio"], slow["median_us"] / good["median_us"])
                for way in ways.values():
                    self.assertLessEqual(way["min_us"], way["median_us"])
                    if way.get("bound") == "memory":
                        self.assertAlmostEqual(way["bound_us"], 1e6 * way["bytes"] / ceilings["copy_bytes_per_s"])

    def test_what_a_gpu_would_show_is_named(self):
        if "none" not in json.dumps(self.figures["machine"]["gpus"]):
            self.skipTest("this machine has a GPU")
        absent = [text for lesson in self.figures["lessons"] for text in lesson["absent"]]
        self.assertTrue(any("needs a GPU" in text and "std::vector" in text for text in absent), absent)

    def test_the_page_is_whole_and_needs_nothing_else(self):
        page = Page()
        page.feed(self.page)
        page.close()
        self.assertEqual((page.errors, page.open), ([], []))
        xml.dom.minidom.parseString(self.page.replace("<!DOCTYPE html>", ""))  # also well-formed as XML
        self.assertNotIn("script", page.tags)
        self.assertNotIn("@import", self.page)
        self.assertNotIn("url(", self.page)
        for link in page.links:
            self.assertTrue(link.startswith("#") and link[1:] in page.ids, link)
        comparisons = [c for lesson in self.figures["lessons"] for c in lesson["comparisons"]]
        self.assertEqual(page.tags.count("svg"), len(comparisons) + 1)  # and the roofline
        for comparison in comparisons:
            self.assertIn(comparison["verdict"], page.text)
            for way in comparison["ways"]:
                self.assertIn(way["code"], page.text)


class Chosen(CommandTest):
    def test_chosen_lessons_come_in_order(self):
        out = self.run_lorry("lessons", "12", "4", *ONCE).out
        self.assertRegex(out, r"(?s)\A4 Batching\n.*\n12 Graphs and buckets\n")
        self.assertNotIn("Memory layout", out)

    def test_an_unknown_number_is_told_with_the_list(self):
        for word in ("15", "-1", "one", "07"):
            err = self.run_lorry("lessons", word, status=2).err
            self.assertIn("lorry lessons: ", err)
            if word != "-1":
                self.assertIn(f"there is no lesson '{word}'", err)
                self.assertIn("0 What starting costs, 1 Create on the device", err)
                self.assertIn("14 Lossy compression", err)

    def test_two_files_cannot_both_be_standard_output(self):
        self.assertIn("cannot both be -", self.run_lorry("lessons", "--report", "-", "--json", "-", status=2).err)

    def test_a_page_that_cannot_be_written_is_told_before_measuring(self):
        done = self.refused("lessons", *ONCE, "--report", "none/page.html", says=("none/page.html",))
        self.assertEqual(done.out, "")

    def test_a_page_on_standard_output_is_alone_there(self):
        done = self.run_lorry("lessons", "4", *ONCE, "--report", "-")
        self.assertTrue(done.out.startswith("<!DOCTYPE html>") and done.out.endswith("</html>\n"))
        self.assertIn("4 Batching", done.err)

    def test_bars_and_progress_are_drawn_on_a_terminal(self):
        status, text = self.run_on_terminal(100, "lessons", "4", *ONCE, stream="stdout")
        self.assertEqual(status, 0)
        lines = text.splitlines()
        self.assertTrue(any(line.startswith("    one after the other ") and "█" in line for line in lines), text)
        self.assertLessEqual(max(len(line) for line in lines if "█" in line), 100)
        loud = [word for word in ONCE if word != "--quiet"]
        status, text = self.run_on_terminal(80, "lessons", "4", *loud)
        self.assertEqual(status, 0)
        self.assertIn("Batching", text)
        self.assertEqual(self.run_on_terminal(80, "lessons", "4", *ONCE), (0, ""))

    def test_a_lesson_without_memory_does_not_stop_the_others(self):
        def limit():
            resource.setrlimit(resource.RLIMIT_AS, (TOO_LITTLE, TOO_LITTLE))
        if subprocess.run([LORRY, "info"], capture_output=True, preexec_fn=limit, timeout=60).returncode != 0:
            self.skipTest("this build needs more address space to start")
        done = self.run_lorry("lessons", "5", "12", *ONCE, "--threads", "1", "--json", "figures.json", status=1,
                              preexec_fn=limit)
        self.assertIn("lesson 5 ended early: ", done.err)
        self.assertIn("12 Graphs and buckets\n", done.out)
        five, twelve = json.loads((self.path / "figures.json").read_text())["lessons"]
        self.assertIn("out of memory", five["error"])
        self.assertNotIn("error", twelve)


if __name__ == "__main__":
    unittest.main()
