"""The C header of a table of kernels."""

from __future__ import annotations

from collections.abc import Mapping

from heddle.artefact import Manifest

_TYPES = """\
#ifndef HEDDLE_TABLE_TYPES_
#define HEDDLE_TABLE_TYPES_
struct heddle_buffer {
  const char* name;
  const char* role; /* "input", "output" or "workspace", which needs no initialisation */
  const char* dtype;
  int64_t bytes;
};
/* A tensor as cuTensorMapEncodeTiled takes it, innermost dimension first, without interleaving: elements of 2 bytes as
   CU_TENSOR_MAP_DATA_TYPE_UINT16, of 4 as _TFLOAT32, strides in bytes, swizzled over 32, 64 or 128 bytes. */
struct heddle_tensor_map {
  int32_t buffer; /* an index into the program's buffers */
  int32_t element_bytes, rank, swizzle_bytes;
  uint64_t shape[5], strides[4];
  uint32_t box[5];
};
/* One kernel. Its arguments are the addresses of buffers, which are 16-byte aligned, then tensor maps. */
struct heddle_launch {
  const char* entry;
  const char* binary; /* below the folder of this header */
  const char* source;
  uint32_t grid[3], block[3];
  uint32_t shared_bytes; /* dynamic: CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES must allow it */
  int32_t argument_count;
  const int32_t* arguments; /* indices into the program's buffers */
  int32_t map_count;
  const struct heddle_tensor_map* maps;
};
/* The kernels of one size, launched in their order on one stream. */
struct heddle_program {
  int64_t size;
  int32_t buffer_count;
  const struct heddle_buffer* buffers; /* inputs and outputs as they are declared, then workspaces */
  int32_t launch_count;
  const struct heddle_launch* launches;
};
#endif
"""


def _quoted(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def text(op: str, parameter: str, manifests: Mapping[str, tuple[int, Manifest]]) -> str:
    """`manifests`: of each subfolder, in the order of the sizes."""
    first = next(iter(manifests.values()))[1]
    fixed = ",".join(f"{k}={v}" for k, v in first.shape.items() if k != parameter)
    sizes = ", ".join(str(size) for size, _ in manifests.values())
    name = f"heddle_{op}"
    guard = f"HEDDLE_TABLE_{op.upper()}_H_"
    lines = [
        f"/* Kernels of {op} {fixed} {first.dtype} for {first.arch}, with {parameter} = {sizes}. */",
        f"#ifndef {guard}",
        f"#define {guard}",
        "#include <stddef.h>",
        "#include <stdint.h>",
        "",
        _TYPES,
    ]
    programs = []
    for folder, (size, manifest) in manifests.items():
        prefix = f"{name}_{size}"
        place = {b.name: i for i, b in enumerate(manifest.buffers)}
        lines.append(f"static const struct heddle_buffer {prefix}_buffers[] = {{")
        lines += [
            f"    {{{_quoted(b.name)}, {_quoted(b.role)}, {_quoted(b.dtype)}, {b.bytes}}}," for b in manifest.buffers
        ]
        lines.append("};")
        launches = []
        for number, launch in enumerate(manifest.launches):
            indices = ", ".join(str(place[a]) for a in launch.args)
            lines.append(f"static const int32_t {prefix}_arguments_{number}[] = {{{indices}}};")
            grid, block = (", ".join(map(str, sides)) for sides in (launch.grid, launch.block))
            files = ", ".join(_quoted(f"{folder}/{file}") for file in (launch.binary, launch.source))
            maps = "NULL"
            if launch.maps:
                maps = f"{prefix}_maps_{number}"
                lines.append(f"static const struct heddle_tensor_map {maps}[] = {{")
                lines += [
                    f"    {{{place[m.buffer]}, {m.element_bytes}, {len(m.box)}, {m.swizzle_bytes}, "
                    + ", ".join(f"{{{', '.join(map(str, s[::-1]))}}}" for s in (m.shape, m.strides, m.box))
                    + "},"
                    for m in launch.maps
                ]
                lines.append("};")
            launches.append(
                f"    {{{_quoted(launch.entry)}, {files}, {{{grid}}}, {{{block}}}, {launch.shared_bytes}, "
                f"{len(launch.args)}, {prefix}_arguments_{number}, {len(launch.maps)}, {maps}}},"
            )
        lines += [f"static const struct heddle_launch {prefix}_launches[] = {{", *launches, "};"]
        programs.append(
            f"    {{{size}, {len(manifest.buffers)}, {prefix}_buffers, {len(launches)}, {prefix}_launches}},"
        )
    lines += [
        f"static const struct heddle_program {name}_programs[] = {{",
        *programs,
        "};",
        "",
        f"/* The program of the smallest size that is not less than {parameter}: tensors have that size then, and what",
        "   stands behind their parts in use decides nothing. NULL where there is none. */",
        f"static inline const struct heddle_program* {name}_find(int64_t {parameter}) {{",
        f"  size_t i, count = sizeof {name}_programs / sizeof {name}_programs[0];",
        "  for (i = 0; i < count; ++i) {",
        f"    if ({parameter} >= 1 && {name}_programs[i].size >= {parameter}) return &{name}_programs[i];",
        "  }",
        "  return NULL;",
        "}",
        "",
        f"#endif /* {guard} */",
        "",
    ]
    return "\n".join(lines)
