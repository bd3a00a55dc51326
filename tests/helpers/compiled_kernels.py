"""Compile the Triton kernels for a GPU that need not be there, and read the machine code.

``python -m tests.helpers.compiled_kernels CAPABILITY`` prints JSON; the process must not have
Triton's interpreter on.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import triton
import triton.backends.nvidia as nvidia
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from pirl_plugin.losses.engines import triton as engine
from pirl_plugin.losses.engines import triton_draw

CUOBJDUMP = Path(nvidia.__file__).parent / "bin" / "cuobjdump"
_KERNELS = {
    "nce": engine._sigmoid_kernel,
    "softmax": engine._softmax_kernel,
    "odds": engine._odds_kernel,
}
_INSTRUCTION = re.compile(r"^\s+/\*([0-9a-f]+)\*/\s+(?:@!?U?P\d+\s+)?([A-Z0-9_.]+)([^;]*);")
_INTEGERS = {"T": "i32", "B": "i32", "D": "i32", "count": "i32", "share": "i32", "left_out": "*i32",
             "draw": "*i32", "indices_of_tops": "*i32"}  # fmt: skip


def compile_kernel(kernel: Any, table: str, capability: int) -> Any:
    """A kernel for rows of 128 dimensions, as the launcher specialises it."""
    chunks = 4 if table == "*fp32" else 2
    constants = {"EXACT": True, "ROWS": 16, "CHUNKS": chunks, "LANES": 128 // chunks}
    types = {name: _INTEGERS.get(name, "*fp32") for name in kernel.arg_names}
    types.update({"table": table, **dict.fromkeys(constants, "constexpr")})
    return _compile(kernel, {name: types[name] for name in kernel.arg_names}, constants, capability)


def compile_draw(capability: int) -> Any:
    """The kernel of the draw."""
    types = {"keys": "*i64", "exclude": "*i64", "draws": "*i32", "bound": "i32", "seed": "i64",
             "step": "i64", "count": "i32", "BLOCK": "constexpr"}  # fmt: skip
    return _compile(triton_draw._draw_kernel, types, {"BLOCK": triton_draw._BLOCK}, capability)


def _compile(kernel: Any, types: dict[str, str], constants: dict[str, Any], capability: int) -> Any:
    places = {name: (index,) for index, name in enumerate(types)}
    aligned = [name for name, kind in types.items() if kind.startswith("*")]
    source = ASTSource(
        fn=kernel,
        signature=types,
        constexprs={places[name]: value for name, value in constants.items()},
        attrs={
            places[name]: [["tt.divisibility", 16]]
            for name in [*aligned, *({"D", "count", "share"} & set(types))]
        },
    )
    return triton.compile(source, target=GPUTarget("cuda", capability, 32))


def read_code(kernel: Any) -> dict[str, Any]:
    """Count its ``instructions``, ``registers``, ``local`` and what each of its ``loops`` holds.

    ``local`` is the memory, bytes a thread, that registers are spilled to. Of a loop: its
    ``instructions``, ``wide`` reads, of 16 bytes for each lane, ``barriers`` and ``shuffles``.
    """
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(kernel.asm["cubin"])
        file.flush()
        text = _output("-sass", file.name)
        usage = _output("-res-usage", file.name)
    found = [match for match in map(_INSTRUCTION.match, text.splitlines()) if match]
    code = [(int(match[1], 16), match[2], match[3]) for match in found]
    loops = []
    for address, operation, rest in code:
        target = re.search(r"0x([0-9a-f]+)", rest) if operation.startswith("BRA") else None
        if target and int(target[1], 16) < address:
            body = [name for at, name, _ in code if int(target[1], 16) <= at <= address]
            loops.append(
                {
                    "instructions": len(body),
                    "wide": sum(name.endswith(".128") for name in body),
                    "barriers": sum(name.startswith("BAR") for name in body),
                    "shuffles": sum(name.startswith("SHFL") for name in body),
                }
            )
    spilled = sum(int(size) for size in re.findall(r"(?:STACK|LOCAL):(\d+)", usage))
    (registers,) = re.findall(r"REG:(\d+)", usage)
    return {
        "instructions": len(code),
        "loops": loops,
        "local": spilled,
        "registers": int(registers),
    }


def _output(option: str, file: str) -> str:
    done = subprocess.run([CUOBJDUMP, option, file], capture_output=True, text=True, check=True)
    return done.stdout


def main(capability: int) -> dict[str, Any]:
    """The code of every kernel; ``instructions`` alone of PTX where there is no ``cuobjdump``."""
    kernels = {
        f"{name} {table[1:]}": compile_kernel(kernel, table, capability)
        for name, kernel in _KERNELS.items()
        for table in ("*fp32", "*bf16")
    }
    kernels["draw"] = compile_draw(capability)
    if not CUOBJDUMP.is_file():
        return {name: {"ptx": kernel.asm["ptx"].count(";\n")} for name, kernel in kernels.items()}
    return {name: read_code(kernel) for name, kernel in kernels.items()}


if __name__ == "__main__":
    print(json.dumps(main(int(sys.argv[1]))))
