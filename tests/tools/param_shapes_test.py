"""bench/data/param_shapes.json is what its script makes, and the models have the sizes that their papers name."""
import subprocess
import sys
import unittest
from pathlib import Path

DATA = Path(__file__).resolve().parents[2] / "bench" / "data"
sys.path.insert(0, str(DATA))
from make_param_shapes import elements, load  # noqa: E402

SIZES = {
    "resnet50": (161, 25_557_032),
    "vit_b_16": (152, 86_567_656),
    "efficientnet_b0": (213, 5_288_548),
    "gpt2": (148, 124_439_808),
    "llama-1b": (146, 1_235_814_400),
    "tiny-4096x1024": (4096, 4_194_304),
    "one-huge-2^30": (1, 1_073_741_824),
}


class ParamShapes(unittest.TestCase):
    def test_the_file_is_what_the_script_makes(self):
        self.assertEqual(subprocess.run([sys.executable, DATA / "make_param_shapes.py", "--check"]).returncode, 0)

    def test_every_model_has_its_published_number_of_tensors_and_elements(self):
        self.assertEqual({model: (len(shapes), elements(shapes)) for model, shapes in load().items()}, SIZES)


if __name__ == "__main__":
    unittest.main()
