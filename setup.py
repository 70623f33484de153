"""What pyproject.toml cannot say: the wheel carries the sources of the optional native library (src_cuda)."""

import shutil
from pathlib import Path

from setuptools import setup
from setuptools.command.build_py import build_py

ROOT = Path(__file__).resolve().parent


class BuildWithNativeSources(build_py):
    def run(self) -> None:
        super().run()
        if self.editable_mode:  # the checkout has them
            return
        target = Path(self.build_lib) / "tvm_cascade" / "native" / "sources"
        shutil.copytree(ROOT / "src_cuda", target / "src_cuda", dirs_exist_ok=True)
        shutil.copy(ROOT / "CMakeLists.txt", target)


setup(cmdclass={"build_py": BuildWithNativeSources})
