# SPDX-FileCopyrightText: The mics authors
# SPDX-License-Identifier: Apache-2.0
"""Builds the wheel (PEP 517): CMake builds library and program, without MPI, which are packed with python/mics.

The wheel needs the libraries of the machine that built it; tools/wheel.sh packs these too.
"""

import base64
import hashlib
import os
import pathlib
import re
import shutil
import subprocess
import zipfile

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent
BUILD = pathlib.Path(os.environ.get("MICS_WHEEL_BUILD", ROOT / "build-wheel"))
OPTIONS = ("CMAKE_BUILD_TYPE=Release", "MICS_MPI=OFF", "MICS_CUDA=OFF", "MICS_TESTS=OFF", "MICS_BENCH=OFF")
TAG = "py3-none-linux_x86_64"

METADATA = """\
Metadata-Version: 2.4
Name: mics
Version: {version}
Summary: Trains transformers with nested sharding degrees (MiCS): libmics and its program
License-Expression: Apache-2.0
License-File: LICENSE
Requires-Python: >=3.9
Provides-Extra: arrays
Requires-Dist: numpy; extra == "arrays"
Description-Content-Type: text/markdown

"""
WHEEL = f"""\
Wheel-Version: 1.0
Generator: mics
Root-Is-Purelib: false
Tag: {TAG}
"""
ENTRY_POINTS = """\
[console_scripts]
mics = mics._program:main
"""


def _version():
    """The library's, which the package must say too."""
    library = re.search(r"project\(mics VERSION (\S+)", (ROOT / "CMakeLists.txt").read_text())[1]
    package = re.search(r'__version__ = "(.*)"', (HERE / "mics" / "__init__.py").read_text())[1]
    if library != package:
        raise SystemExit(f"python/mics is {package}, but CMakeLists.txt says {library}")
    return library


def _compile():
    jobs = os.environ.get("JOBS", str(os.cpu_count()))
    subprocess.run(["cmake", "-S", ROOT, "-B", BUILD, *(f"-D{option}" for option in OPTIONS)], check=True)
    subprocess.run(["cmake", "--build", BUILD, "-j", jobs, "--target", "mics_cli", "mics_shared"], check=True)


def _stripped(name):
    file = (BUILD / name).resolve()
    bare = BUILD / f"{file.name}.stripped"
    subprocess.run(["strip", "--strip-unneeded", "-o", bare, file], check=True)
    return bare.read_bytes()


def _licences():
    """Of the libraries that are needed, which tools/wheel.sh packs, as Debian has them: (package, text)."""
    text = subprocess.run(["ldd", BUILD / "libmics.so"], check=True, capture_output=True, text=True).stdout
    packages = set()
    if shutil.which("dpkg") is None:
        return
    for library in re.findall(r"=> (/\S+)", text):
        # dpkg knows some by their path before /lib became a link.
        command = ["dpkg", "-S", library, f"/usr{library}"]
        owners = subprocess.run(command, check=False, capture_output=True, text=True).stdout
        packages.update(re.findall(r"^([^:,]+):", owners, re.M))
    for package in sorted(packages):
        copyright_file = pathlib.Path("/usr/share/doc") / package / "copyright"
        if copyright_file.exists():
            yield package, copyright_file.read_bytes()


def _files(info):
    """What is packed: (name, bytes, whether it can be run)."""
    for file in sorted((HERE / "mics").glob("*.py")):
        yield f"mics/{file.name}", file.read_bytes(), False
    yield "mics/lib/libmics.so", _stripped("libmics.so"), True
    yield "mics/bin/mics", _stripped("mics"), True
    yield f"{info}/METADATA", (
        METADATA.format(version=_version()) + (ROOT / "docs" / "python.md").read_text()
    ).encode(), False
    yield f"{info}/WHEEL", WHEEL.encode(), False
    yield f"{info}/entry_points.txt", ENTRY_POINTS.encode(), False
    yield f"{info}/licenses/LICENSE", (ROOT / "LICENSE").read_bytes(), False
    for package, text in _licences():
        yield f"{info}/licenses/{package}", text, False


def _add(archive, name, data, runs):
    entry = zipfile.ZipInfo(name, (1980, 1, 1, 0, 0, 0))  # the same bytes whenever it is built
    entry.external_attr = (0o100755 if runs else 0o100644) << 16
    archive.writestr(entry, data, zipfile.ZIP_DEFLATED)


def build_wheel(wheel_directory, config_settings=None, metadata_directory=None):
    """Called by pip and `build`. Returns the file's name."""
    del config_settings, metadata_directory
    version = _version()
    info, name = f"mics-{version}.dist-info", f"mics-{version}-{TAG}.whl"
    records = []
    _compile()
    with zipfile.ZipFile(pathlib.Path(wheel_directory) / name, "w") as archive:
        for path, data, runs in _files(info):
            digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
            records.append(f"{path},sha256={digest},{len(data)}\n")
            _add(archive, path, data, runs)
        _add(archive, f"{info}/RECORD", "".join(records) + f"{info}/RECORD,,\n", False)
    return name


def build_sdist(sdist_directory, config_settings=None):
    """There is none: the sources are the repository."""
    raise SystemExit("mics has no source distribution; build the wheel in the repository (tools/wheel.sh)")
