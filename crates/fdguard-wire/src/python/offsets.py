#!/usr/bin/env python3
"""Writes table.rs: where CPython keeps what the walk reads, asked of each version's own headers.

For every minor version it compiles one C program against that version's internal headers, runs it,
and compares the sizes it printed with those of the running interpreter (`__basicsize__`), so that
headers of another build are noticed.

    offsets.py            write table.rs
    offsets.py --check    exit 1 if table.rs is not what would be written

Interpreters are looked for in $PYENV_ROOT/versions (or ~/.pyenv/versions), one of each minor
version, the newest. All of them must be there: a table with holes is not written.
"""

import glob
import os
import re
import subprocess
import sys
import tempfile

MINORS = [9, 10, 11, 12, 13]

HEAD = r"""
#define Py_BUILD_CORE 1
#include <Python.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <frameobject.h>
#include <internal/pycore_pystate.h>
#include <internal/pycore_runtime.h>
#include <internal/pycore_interp.h>
#if PY_MINOR_VERSION >= 11
#include <internal/pycore_frame.h>
#endif

static unsigned mask_of(PyASCIIObject *o) {
    unsigned state;
    memcpy(&state, &o->state, sizeof state);
    return state;
}

#define SAY(name, value) printf("%s %zu\n", name, (size_t)(value))
#define MASK(name, field) do { PyASCIIObject o; memset(&o, 0, sizeof o); \
    o.state.field = (unsigned)-1; SAY(name, mask_of(&o)); } while (0)

int main(void) {
    SAY("minor", PY_MINOR_VERSION);
    SAY("object_type", offsetof(PyObject, ob_type));
    SAY("type_basic_size", offsetof(PyTypeObject, tp_basicsize));
    SAY("type_flags", offsetof(PyTypeObject, tp_flags));
    SAY("runtime_finalizing", offsetof(_PyRuntimeState, _finalizing));
#if PY_MINOR_VERSION >= 12
    SAY("runtime_thread_key", offsetof(_PyRuntimeState, autoTSSkey));
#else
    SAY("runtime_thread_key", offsetof(_PyRuntimeState, gilstate.autoTSSkey));
#endif
    SAY("thread_id", offsetof(PyThreadState, thread_id));
    SAY("unicode_size", sizeof(PyUnicodeObject));
    SAY("unicode_length", offsetof(PyASCIIObject, length));
    SAY("unicode_state", offsetof(PyASCIIObject, state));
    SAY("unicode_ascii", sizeof(PyASCIIObject));
    SAY("unicode_compact", sizeof(PyCompactUnicodeObject));
    SAY("unicode_any", offsetof(PyUnicodeObject, data));
    MASK("state_kind", kind);
    MASK("state_is_compact", compact);
    MASK("state_is_ascii", ascii);
    SAY("bytes_size", offsetof(PyBytesObject, ob_sval) + 1);
    SAY("bytes_length", offsetof(PyVarObject, ob_size));
    SAY("bytes_start", offsetof(PyBytesObject, ob_sval));
    SAY("code_filename", offsetof(PyCodeObject, co_filename));
    SAY("code_first_line", offsetof(PyCodeObject, co_firstlineno));
    SAY("type_name", offsetof(PyTypeObject, tp_name));
    SAY("type_init", offsetof(PyTypeObject, tp_init));
    SAY("type_alloc", offsetof(PyTypeObject, tp_alloc));
    SAY("tuple_length", offsetof(PyVarObject, ob_size));
    SAY("tuple_items", offsetof(PyTupleObject, ob_item));
"""

OBJECTS = r"""
    SAY("thread_frame", offsetof(PyThreadState, frame));
    SAY("cframe_current", 0);
    SAY("frame_size", sizeof(PyFrameObject));
    SAY("frame_code", offsetof(PyFrameObject, f_code));
    SAY("frame_back", offsetof(PyFrameObject, f_back));
    SAY("frame_instruction", offsetof(PyFrameObject, f_lasti));
    SAY("frame_owner", 0);
    SAY("code_size", sizeof(PyCodeObject));
    SAY("code_name", offsetof(PyCodeObject, co_name));
    SAY("code_first_traceable", 0);
    SAY("code_start", 0);
    SAY("frame_generator", offsetof(PyFrameObject, f_gen));
    SAY("frame_locals", offsetof(PyFrameObject, f_localsplus));
    SAY("generator_frame", offsetof(PyGenObject, gi_frame));
"""

FRAMES = r"""
    SAY("frame_size", offsetof(PyFrameObject, _f_frame_data) + offsetof(_PyInterpreterFrame, localsplus));
    SAY("frame_back", offsetof(_PyInterpreterFrame, previous));
    SAY("frame_owner", offsetof(_PyInterpreterFrame, owner));
    SAY("code_size", offsetof(PyCodeObject, co_code_adaptive));
    SAY("code_name", offsetof(PyCodeObject, co_qualname));
    SAY("code_first_traceable", offsetof(PyCodeObject, _co_firsttraceable));
    SAY("code_start", offsetof(PyCodeObject, co_code_adaptive));
    SAY("frame_generator", 0);
    SAY("frame_locals", offsetof(_PyInterpreterFrame, localsplus));
    SAY("generator_frame", offsetof(PyGenObject, gi_iframe));
"""

CFRAME = r"""
    SAY("thread_frame", offsetof(PyThreadState, cframe));
    SAY("cframe_current", offsetof(_PyCFrame, current_frame));
    SAY("frame_code", offsetof(_PyInterpreterFrame, f_code));
    SAY("frame_instruction", offsetof(_PyInterpreterFrame, prev_instr));
"""

CURRENT = r"""
    SAY("thread_frame", offsetof(PyThreadState, current_frame));
    SAY("cframe_current", 0);
    SAY("frame_code", offsetof(_PyInterpreterFrame, f_executable));
    SAY("frame_instruction", offsetof(_PyInterpreterFrame, instr_ptr));
"""

LNOTAB = '    SAY("code_lines", offsetof(PyCodeObject, co_lnotab));\n'
LINETABLE = '    SAY("code_lines", offsetof(PyCodeObject, co_linetable));\n'

# Where 3.13's _Py_DebugOffsets says each of the above: our name, its name.
DEBUG = [
    ("version", "version"),
    ("free_threaded", "free_threaded"),
    ("runtime_finalizing", "runtime_state.finalizing"),
    ("thread_frame", "thread_state.current_frame"),
    ("thread_id", "thread_state.thread_id"),
    ("frame_code", "interpreter_frame.executable"),
    ("frame_back", "interpreter_frame.previous"),
    ("frame_instruction", "interpreter_frame.instr_ptr"),
    ("frame_owner", "interpreter_frame.owner"),
    ("code_filename", "code_object.filename"),
    ("code_name", "code_object.qualname"),
    ("code_first_line", "code_object.firstlineno"),
    ("code_lines", "code_object.linetable"),
    ("code_start", "code_object.co_code_adaptive"),
    ("object_type", "pyobject.ob_type"),
    ("type_flags", "type_object.tp_flags"),
    ("bytes_length", "bytes_object.ob_size"),
    ("bytes_start", "bytes_object.ob_sval"),
    ("unicode_length", "unicode_object.length"),
    ("unicode_state", "unicode_object.state"),
    ("unicode_ascii", "unicode_object.asciiobject_size"),
]

SIZES = """
import types
print("code_size", types.CodeType.__basicsize__)
print("frame_size", types.FrameType.__basicsize__)
print("unicode_size", str.__basicsize__)
print("bytes_size", bytes.__basicsize__)
"""


def interpreters():
    root = os.environ.get("PYENV_ROOT") or os.path.expanduser("~/.pyenv")
    found = {}
    for path in glob.glob(os.path.join(root, "versions", "3.*")):
        match = re.fullmatch(r"3\.(\d+)\.(\d+)", os.path.basename(path))
        if match:
            minor, micro = int(match[1]), int(match[2])
            found[minor] = max(found.get(minor, (-1, "")), (micro, path))
    missing = [f"3.{minor}" for minor in MINORS if minor not in found]
    if missing:
        sys.exit(f"offsets.py: no interpreter for {', '.join(missing)} in {root}/versions")
    return {minor: found[minor][1] for minor in MINORS}


def program(minor):
    text = HEAD + (LNOTAB if minor == 9 else LINETABLE)
    if minor <= 10:
        text += OBJECTS
    else:
        text += FRAMES + (CFRAME if minor <= 12 else CURRENT)
    if minor >= 13:
        for ours, theirs in DEBUG:
            text += f'    SAY("debug.{ours}", offsetof(_Py_DebugOffsets, {theirs}));\n'
    return text + "    return 0;\n}\n"


def pairs(text):
    return {name: int(value) for name, value in (line.split() for line in text.splitlines())}


def measure(minor, home):
    with tempfile.TemporaryDirectory() as folder:
        source, binary = os.path.join(folder, "a.c"), os.path.join(folder, "a")
        with open(source, "w") as file:
            file.write(program(minor))
        include = os.path.join(home, "include", f"python3.{minor}")
        command = [os.environ.get("CC", "cc"), "-w", "-I", include, "-I", os.path.join(include, "internal")]
        subprocess.run([*command, source, "-o", binary], check=True)
        said = pairs(subprocess.run([binary], check=True, capture_output=True, text=True).stdout)
    python = os.path.join(home, "bin", f"python3.{minor}")
    run = subprocess.run([python, "-I", "-c", SIZES], check=True, capture_output=True, text=True)
    for name, size in pairs(run.stdout).items():
        if said[name] != size:
            sys.exit(f"offsets.py: 3.{minor}: {name} is {said[name]} by its headers and {size} when it runs")
    return said


def render(measured):
    lines = [
        "//! Where each CPython keeps what the walk reads. Written by `offsets.py`, by nothing else.",
        "//!",
        "//! 64-bit little-endian builds with the GIL and without reference tracing.",
        "",
        "use super::offsets::{DebugOffsets, PythonOffsets};",
        "",
    ]
    rows = ", ".join(f"MINOR_{minor}" for minor in MINORS)
    before = None
    for minor in MINORS:
        row = {name: value for name, value in measured[minor].items() if not name.startswith("debug.")}
        lines.append(f"const MINOR_{minor}: PythonOffsets = PythonOffsets {{")
        if before is not None:
            kept = measured[before]
            row = {name: value for name, value in row.items() if kept.get(name) != value}
        lines += [f"    {name}: {value}," for name, value in row.items()]
        lines += [] if before is None else [f"    ..MINOR_{before}"]
        lines.append("};")
        before = minor
    lines += [
        "",
        "/// One row a minor version, in their order.",
        f"pub(super) const TABLE: [PythonOffsets; {len(measured)}] = [{rows}];",
        "",
        "/// Where 3.13's `_Py_DebugOffsets` keeps each offset.",
        "pub(super) const DEBUG_3_13: DebugOffsets = DebugOffsets {",
    ]
    for name, value in measured[13].items():
        if name.startswith("debug."):
            lines.append(f"    {name.removeprefix('debug.')}: {value},")
    lines.append("};")
    return "\n".join(lines) + "\n"


def main():
    target = os.path.join(os.path.dirname(os.path.abspath(__file__)), "table.rs")
    text = render({minor: measure(minor, home) for minor, home in interpreters().items()})
    if sys.argv[1:] == ["--check"]:
        with open(target) as file:
            if file.read() != text:
                sys.exit("offsets.py: table.rs is not what would be written")
    elif sys.argv[1:]:
        sys.exit(__doc__)
    else:
        with open(target, "w") as file:
            file.write(text)


if __name__ == "__main__":
    main()
