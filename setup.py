"""Build steps that ``pyproject.toml``, which has the metadata, has no option for.

The import hook's bootstrap and its start-up files go to the root of site-packages, in wheels and in
editable installs. ``configs/`` is installed as ``pirl_plugin/configs`` (a top-level ``configs``
is VISSL's).
"""

import os
import re
import shutil
from pathlib import Path

from setuptools import setup
from setuptools.command.build_py import build_py

ROOT = Path(__file__).parent
BOOTSTRAP = "pirl_plugin_autoload"


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
    if url is not None:
        text = text.replace("git clone REPOSITORY", f"git clone {repository(url)}")
    relative = r"(!?)\[([^\]]*)\]\((?!https?://)([^)]+)\)"
    if url is None:
        return re.sub(relative, lambda link: "" if link[1] else link[2], text)

    def absolute(link):
        raw = "?raw=true" if link[1] else ""  # the image, not the page that shows it
        return f"{link[1]}[{link[2]}]({url.rstrip('/')}/{link[3]}{raw})"

    return re.sub(relative, absolute, text)


def repository(url):
    """Return the repository's address, from the address of its files."""
    return url.partition("/blob/")[0]


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


def project_urls(url):
    """Return the addresses in the metadata: the repository, its changelog and its issues.

    Args:
        url: as for :func:`readme`; None gives no addresses.
    """
    if url is None:
        return {}
    return {
        "Repository": repository(url),
        "Changelog": f"{url.rstrip('/')}/CHANGELOG.md",
        "Issues": f"{repository(url)}/issues",
    }


URL = os.environ.get("PIRL_PROJECT_URL")
setup(
    long_description=readme(URL),
    project_urls=project_urls(URL),
    long_description_content_type="text/markdown",
    cmdclass={"build_py": BuildWithBootstrap},
)
