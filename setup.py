"""Build of pirl-plugin: metadata, and two steps that setuptools has no option for.

The import hook's bootstrap and its start-up files go to the root of site-packages, in wheels and in
editable installs. ``configs/`` is installed as ``pirl_plugin/configs`` (a top-level ``configs``
is VISSL's).
"""

import os
import re
import shutil
from pathlib import Path

from setuptools import find_packages, setup
from setuptools.command.build_py import build_py

ROOT = Path(__file__).parent
BOOTSTRAP = "pirl_plugin_autoload"
VERSION = re.search(r'__version__ = "(.+)"', (ROOT / "pirl_plugin/__init__.py").read_text())[1]

# Packages that only some users need. Errors name a missing one. The tests use all of them.
OPTIONAL = {
    "timm": ["timm>=1.0"],
    "lightning": ["lightning>=2.2"],
    "claims": ["pandas>=2"],
    "hf": ["datasets>=3"],
}


def write_bootstrap(folder):
    """Write the bootstrap, and the start-up files that make every Python process import it.

    Python up to 3.17 reads the ``.pth`` file, 3.15 and later the ``.start`` file (PEP 829). If a
    Python supports both, it reads only the ``.start`` file.
    """
    source = ROOT / "pirl_plugin" / "vissl" / "import_hook" / "bootstrap.py"
    shutil.copyfile(source, Path(folder, f"{BOOTSTRAP}.py"))
    Path(folder, f"{BOOTSTRAP}.pth").write_text(f"import {BOOTSTRAP}\n")
    Path(folder, f"{BOOTSTRAP}.start").write_text(f"{BOOTSTRAP}:install\n")


def readme(url):
    """Return the README with links that work on a package index (relative links do not).

    Args:
        url: address of the repository's files, such as ``https://HOST/OWNER/NAME/blob/main``; None
            keeps only the text of relative links.
    """
    text = (ROOT / "README.md").read_text()
    relative = r"(!?)\[([^\]]*)\]\((?!https?://)([^)]+)\)"
    if url is None:
        return re.sub(relative, lambda link: "" if link[1] else link[2], text)
    return re.sub(relative, rf"\1[\2]({url.rstrip('/')}/\3)", text)


class BuildWithBootstrap(build_py):
    """Adds the bootstrap, and the configs to a wheel; an editable install uses the clone's."""

    def run(self):
        """Build the modules, then add the other files."""
        if not self.editable_mode:
            shutil.rmtree(self.build_lib, ignore_errors=True)  # modules of an earlier build
        super().run()
        if self.editable_mode:
            # setuptools copies this folder into an editable wheel, with its own .pth file.
            write_bootstrap(self.distribution.get_command_obj("install").install_purelib)
            return
        write_bootstrap(self.build_lib)
        shutil.copytree(
            ROOT / "configs",
            Path(self.build_lib, "pirl_plugin", "configs"),
            dirs_exist_ok=True,
            ignore=lambda folder, names: [
                n for n in names if not (n.endswith(".yaml") or Path(folder, n).is_dir())
            ],
        )


setup(
    name="pirl-plugin",
    version=VERSION,
    description="PIRL self-supervised pre-training (arXiv 1912.01991) as a plugin for VISSL",
    long_description=readme(os.environ.get("PIRL_PROJECT_URL")),
    long_description_content_type="text/markdown",
    license="MIT",
    license_files=["LICENSE"],
    python_requires=">=3.10",
    # With "." as the folder of packages, an editable install is a plain path in a .pth file.
    # Otherwise setuptools starts its own finder in every process, which takes 8 ms.
    package_dir={"": "."},
    packages=find_packages(include=["pirl_plugin", "pirl_plugin.*"]),
    package_data={
        "pirl_plugin": ["py.typed"],
        "pirl_plugin.evaluation": ["*.json"],
        "pirl_plugin.quickstart": ["*.j2"],
    },
    # Without vissl, because its version pins make pip fail. Without classy-vision, because the
    # index's package overwrites the copy inside VISSL's wheel.
    install_requires=[
        "torch>=2.6",
        "torchvision>=0.21",
        "numpy>=1.26",
        "numba>=0.61",
        "pillow>=10",
        "fvcore>=0.1.5",
        "iopath>=0.1.10",
        "hydra-core>=1.3,<1.4",
        "omegaconf>=2.3,<2.4",
        "scikit-learn>=1.4",
        "scipy>=1.11",
        "submitit>=1.5",
        "tabulate>=0.9",
        "tensorboard>=2.15",
        "matplotlib>=3.8",
        "jinja2>=3.1",
        "tqdm>=4.65",
        "safetensors>=0.4",
        "filelock>=3.12",
    ],
    extras_require={
        **OPTIONAL,
        "test": [
            "pytest>=8",
            "pytest-xdist>=3.7",
            "pytest-timeout>=2.3",
            "hypothesis>=6.100",
            "ruff>=0.9",
            "mypy>=1.13",
            *(requirement for extra in OPTIONAL.values() for requirement in extra),
        ],
        "docs": ["sphinx>=7", "furo>=2024", "myst-nb>=1.1", "ipykernel>=6.29"],
    },
    entry_points={"console_scripts": ["pirl-plugin=pirl_plugin.cli:main"]},
    cmdclass={"build_py": BuildWithBootstrap},
    classifiers=[
        "Operating System :: POSIX",
        "Programming Language :: Python :: 3.10",
        "Programming Language :: Python :: 3.11",
        "Programming Language :: Python :: 3.12",
        "Programming Language :: Python :: 3.13",
        "Topic :: Scientific/Engineering :: Artificial Intelligence",
    ],
)
