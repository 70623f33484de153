"""The CUDA text of a kernel for a compiler of the host: its inline PTX as calls of the emulator's functions.

    asm volatile("bar.sync %0, %1;" : : "r"(__a), "r"(__b) : "memory");   ->   ptx::bar_sync(__a, __b);

The rest of the text stays as it is; headers of the emulator (`device/`) stand for CUDA's.
"""

from __future__ import annotations

import re

_ASM = re.compile(r"asm(?: volatile)?\((?P<body>.*?)\);\n", re.DOTALL)
_LITERAL = re.compile(r'\s*"((?:[^"\\]|\\.)*)"')
_OPERAND = re.compile(r'"[=+]?\w"\(([^()]*)\)')
_SHARED_MEMORY = re.compile(r"extern __shared__ __align__\(\d+\) uchar _ptr\[\];")
_KERNEL = re.compile(r"__global__ void __launch_bounds__\((?P<threads>\d+)[^)]*\) (?P<name>\w+)\(")

_MULTIPLY = r"\{ \.reg \.pred ps0; setp\.ne\.b32 ps0, (?P<add>%\d+), 0; wgmma\.mma_async\.sync\.aligned\."
_OF_16_BITS = _MULTIPLY + r"m64n(?P<n>\d+)k16\.f32\.(?P<t>f16|bf16)\.(?P<u>(?P=t)) \{(?P<d>[^}]*)\}, "
_OF_8_BITS = _MULTIPLY + r"m64n(?P<n>\d+)k32\.f32\.(?P<t>e4m3|e5m2)\.(?P<u>e4m3|e5m2) \{(?P<d>[^}]*)\}, "
_OF_32_BITS = _MULTIPLY + r"m64n(?P<n>\d+)k8\.f32\.(?P<t>tf32)\.(?P<u>tf32) \{(?P<d>[^}]*)\}, "
_SIGNS = r"ps0, (?P<sl>-?1), (?P<sr>-?1)"
_SHARED = "ptx::wgmma_shared({n}, {{ptx::Dtype::{t}, ptx::Dtype::{u}}}, __d, {l}, {r}, {add}, "
_REGISTERS = "ptx::wgmma_registers({n}, {{ptx::Dtype::{t}, ptx::Dtype::{u}}}, __d, {{{l}}}, {r}, {add}, "
_COPY_PLACE = r"\{(?P<at>[%\d, ]+)\}"

# Each PTX instruction (a text that has to match as a whole) with the call that stands for it.
_CALLS: tuple[tuple[str, str], ...] = (
    (r"\{ \.reg \.pred %%px; elect\.sync _\|%%px, %1; @%%px mov\.s32 %0, 1; \}", "%0 = ptx::elect_sync(%1);"),
    (
        r"\{ \.reg \.pred P1; LAB_WAIT: mbarrier\.try_wait\.parity\.acquire\.cta\.shared::cta\.b64 P1, \[%0\], %1, %2; "
        r"@P1 bra\.uni DONE; bra\.uni LAB_WAIT; DONE: \}",
        "ptx::mbarrier_wait(%0, %1);",
    ),
    (r"mbarrier\.init\.shared\.b64 \[%0\], %1;", "ptx::mbarrier_init(%0, %1);"),
    (r"mbarrier\.arrive\.shared\.b64 _, \[%0\], %1;", "ptx::mbarrier_arrive(%0, %1);"),
    (r"mbarrier\.arrive\.expect_tx\.shared\.b64 _, \[%0\], %1;", "ptx::mbarrier_arrive_expect_tx(%0, %1);"),
    (r"mov\.b(?:32|64) %0, %1;", "%0 = %1;"),
    (r"mov\.u64 %0, %%gridid;", "%0 = ptx::launch_number;"),
    (r"mov\.u32 %0, %%cluster_ctarank;", "%0 = blockIdx.x % ptx::cluster;"),
    (r"fence\.mbarrier_init\.release\.cluster;", ""),
    (r"barrier\.cluster\.arrive\.(release|relaxed);", "ptx::cluster_arrive();"),
    (
        r"st\.async\.weak\.shared::cluster\.mbarrier::complete_tx::bytes\.v4\.f32 "
        r"\[%0\], \{%1, %2, %3, %4\}, \[%5\];",
        "ptx::send_to_block(%0, {{%1, %2, %3, %4}}, %5);",
    ),
    (r"mapa\.shared::cluster\.u32 %0, %1, %2;", "%0 = ptx::map_to_block(%1, %2);"),
    (r"mbarrier\.arrive\.shared::cluster\.b64 _, \[%0\], %1;", "ptx::mbarrier_arrive_at_block(%0, %1);"),
    (r"barrier\.cluster\.wait\.acquire;", "ptx::cluster_wait();"),
    (r"bar\.sync %0, %1;", "ptx::bar_sync(%0, %1);"),
    (r"bar\.arrive %0, %1;", "ptx::bar_arrive(%0, %1);"),
    (
        r"\{ \.reg \.pred ps0; setp\.ne\.b32 ps0, %3, 0; bar\.red\.popc\.u32 %0, %1, %2, ps0; \}",
        "%0 = ptx::bar_red_popc(%1, %2, %3);",
    ),
    (r"setmaxnreg\.inc\.sync\.aligned\.u32 (?P<n>\d+);", "ptx::setmaxnreg(true, {n});"),
    (r"setmaxnreg\.dec\.sync\.aligned\.u32 (?P<n>\d+);", "ptx::setmaxnreg(false, {n});"),
    (
        r"\{ \.reg \.pred ps0; setp\.ne\.b32 ps0, %3, 0; selp\.f32 %0, %1, %2, ps0; \}",
        "%0 = %3 ? %1 : %2;",
    ),
    (r"red\.release\.gpu\.global\.add\.u32 \[%0\], %1;", "atomicAdd(%0, %1);"),
    (r"ld\.acquire\.gpu\.global\.u32 %0, \[%1\];", "%0 = ptx::look(%1);"),
    (r"ld\.global\.v2\.b32 \{%0, %1\}, \[%2\];", "ptx::load_global_pair(%0, %1, %2);"),
    (r"ld\.global\.b32 %0, \[%1\];", "%0 = ptx::load_global(%1);"),
    (
        r"st\.shared\.v4\.b32 \[%0\], \{%1, %2, %3, %4\};",
        "ptx::store_shared_vector(%0, %1, %2, %3, %4);",
    ),
    (r"st\.shared\.b32 \[%0\], %1;", "ptx::store_shared(%0, %1);"),
    (r"st\.shared\.v2\.f32 \[%0\], \{%1, %2\};", "ptx::store_shared_pair(%0, %1, %2);"),
    (r"st\.global\.b32 \[%0\], %1;", "ptx::store_global(%0, %1);"),
    (r"st\.global\.v2\.f32 \[%0\], \{%1, %2\};", "ptx::store_global_pair(%0, %1, %2);"),
    (r"st\.global\.v2\.b32 \[%0\], \{%1, %2\};", "ptx::store_global_words(%0, %1, %2);"),
    (r"prefetch\.tensormap \[%0\];", "ptx::prefetch_tensormap(%0);"),
    (r"cp\.async\.bulk\.prefetch\.L2\.global \[%0\], %1;", ""),
    (
        rf"cp\.async\.bulk\.prefetch\.tensor\.\dd\.L2\.global\.tile \[%0, {_COPY_PLACE}\];",
        "ptx::prefetch_tensor(%0, {{{at}}});",
    ),
    (r"griddepcontrol\.(wait|launch_dependents);", ""),
    (r"ld\.global\.cg\.f32 %0, \[%1\];", "%0 = *%1;"),
    (
        r"ld\.global\.cg\.v4\.f32 \{%0, %1, %2, %3\}, \[%4\];",
        "%0 = (%4)[0], %1 = (%4)[1], %2 = (%4)[2], %3 = (%4)[3];",
    ),
    (
        r"cp\.async\.bulk\.tensor\.\dd\.shared::cluster\.global\.mbarrier::complete_tx::bytes "
        rf"\[%0\], \[%1, {_COPY_PLACE}\], \[(?P<barrier>%\d+)\];",
        "ptx::copy_tensor_to_shared(%0, %1, {{{at}}}, {barrier});",
    ),
    (
        r"cp\.async\.bulk\.tensor\.\dd\.shared::cluster\.global\.mbarrier::complete_tx::bytes\.multicast::cluster "
        rf"\[%0\], \[%1, {_COPY_PLACE}\], \[(?P<barrier>%\d+)\], (?P<blocks>%\d+);",
        "ptx::copy_tensor_to_blocks(%0, %1, {{{at}}}, {barrier}, {blocks});",
    ),
    (
        r"cp\.async\.bulk\.shared::cluster\.global\.mbarrier::complete_tx::bytes \[%0\], \[%1\], %2, \[%3\];",
        "ptx::copy_to_shared(%0, %1, %2, %3);",
    ),
    (
        r"cp\.async\.bulk\.shared::cluster\.shared::cta\.mbarrier::complete_tx::bytes \[%0\], \[%1\], %2, \[%3\];",
        "ptx::copy_to_block(%0, %1, %2, %3);",
    ),
    (
        r"cp\.async\.bulk\.tensor\.\dd\.global\.shared::cta\.tile\.bulk_group "
        rf"\[%0, {_COPY_PLACE}\], \[(?P<source>%\d+)\];",
        "ptx::copy_tensor_to_global(%0, {{{at}}}, {source});",
    ),
    (r"cp\.async\.c[ag]\.shared\.global \[%0\], \[%1\], (?P<n>\d+);", "ptx::copy_async(%0, %1, {n}, {n});"),
    (r"cp\.async\.c[ag]\.shared\.global \[%0\], \[%1\], (?P<n>\d+), %2;", "ptx::copy_async(%0, %1, {n}, %2);"),
    (r"cp\.async\.mbarrier\.arrive\.noinc\.shared\.b64 \[%0\];", "ptx::async_arrive(%0);"),
    (r"cp\.async\.commit_group;", "ptx::async_commit_group();"),
    (r"cp\.async\.wait_group (?P<n>\d+);", "ptx::async_wait_group({n});"),
    (r"cp\.async\.bulk\.commit_group;", "ptx::bulk_commit_group();"),
    (r"cp\.async\.bulk\.wait_group(?:\.read)? (?P<n>\d+);", "ptx::bulk_wait_group({n});"),
    (r"fence\.proxy\.async\.shared::cta;", "ptx::fence_proxy_async();"),
    (
        r"stmatrix\.sync\.aligned\.m8n8\.x4\.shared\.b16 \[%0\], \{%1, %2, %3, %4\};",
        "ptx::stmatrix_x4(%0, %1, %2, %3, %4);",
    ),
    (
        r"ldmatrix\.sync\.aligned\.m8n8\.x4(?P<turned>(\.trans)?)\.shared\.b16 \{%0, %1, %2, %3\}, \[%4\];",
        'ptx::ldmatrix(*"{turned}", {{&%0, &%1, &%2, &%3}}, %4);',
    ),
    (
        r"ldmatrix\.sync\.aligned\.m8n8\.x2(?P<turned>(\.trans)?)\.shared\.b16 \{%0, %1\}, \[%2\];",
        'ptx::ldmatrix(*"{turned}", {{&%0, &%1}}, %2);',
    ),
    (
        r"mma\.sync\.aligned\.m16n8k16\.row\.col\.f32\.(?P<t>f16|bf16)\.(?P=t)\.f32 \{%0, %1, %2, %3\}, "
        r"\{%4, %5, %6, %7\}, \{%8, %9\}, \{%10, %11, %12, %13\};",
        "ptx::mma_sync(ptx::Dtype::{t}, {{&%0, &%1, &%2, &%3}}, {{%4, %5, %6, %7}}, {{%8, %9}}, "
        "{{%10, %11, %12, %13}});",
    ),
    (r"ld\.shared\.v4\.b32 \{%0, %1, %2, %3\}, \[%4\];", "ptx::load_shared_x4(%0, %1, %2, %3, %4);"),
    (r"st\.shared\.v4\.b32 \[%0\], \{%1, %2, %3, %4\};", "ptx::store_shared_x4(%0, %1, %2, %3, %4);"),
    (r"cvt\.rn\.f16x2\.e4m3x2 %0, %1;", "%0 = ptx::widen<Float8E4m3>(%1);"),
    (r"cvt\.rn\.f16x2\.e5m2x2 %0, %1;", "%0 = ptx::widen<Float8E5m2>(%1);"),
    (r"cvt\.f32\.f16 %0, %1;", "%0 = Float16::widen(%1);"),
    (r"mul\.rn\.f16x2 %0, %1, %2;", "%0 = ptx::multiply_pairs<Float16>(%1, %2);"),
    (r"mul\.rn\.bf16x2 %0, %1, %2;", "%0 = ptx::multiply_pairs<Bfloat16>(%1, %2);"),
    (r"abs\.f16x2 %0, %1;", "%0 = %1 & 0x7fff7fff;"),
    (r"max\.f16x2 %0, %1, %2;", "%0 = ptx::larger_pairs<Float16>(%1, %2);"),
    (r"cvt\.rn\.f16x2\.f32 %0, %1, %2;", "%0 = ptx::pack<Float16>(%1, %2);"),
    (r"cvt\.rn\.bf16x2\.f32 %0, %1, %2;", "%0 = ptx::pack<Bfloat16>(%1, %2);"),
    (r"cvt\.rn\.satfinite\.e4m3x2\.f32 %0, %1, %2;", "%0 = ptx::pack_bytes<Float8E4m3>(%1, %2);"),
    (r"cvt\.rn\.satfinite\.e5m2x2\.f32 %0, %1, %2;", "%0 = ptx::pack_bytes<Float8E5m2>(%1, %2);"),
    (r"redux\.sync\.max\.s32 %0, %1, %2;", "%0 = ptx::greatest_of_warp(%1, %2);"),
    (r"redux\.sync\.min\.s32 %0, %1, %2;", "%0 = -ptx::greatest_of_warp(-%1, %2);"),
    (r"prmt\.b32 %0, %1, %2, %3;", "%0 = ptx::permute(%1, %2, %3);"),
    (r"wgmma\.fence\.sync\.aligned;", "ptx::wgmma_fence();"),
    (r"wgmma\.commit_group\.sync\.aligned;", "ptx::wgmma_commit_group();"),
    (r"wgmma\.wait_group\.sync\.aligned (?P<n>\d+);", "ptx::wgmma_wait_group({n});"),
    (
        _OF_16_BITS + rf"(?P<l>%\d+), (?P<r>%\d+), {_SIGNS}, (?P<tl>[01]), (?P<tr>[01]); \}}",
        _SHARED + "{{{sl}, {sr}, {tl}, {tr}}});",
    ),
    (
        _OF_16_BITS + rf"\{{(?P<l>[^}}]*)\}}, (?P<r>%\d+), {_SIGNS}, (?P<tr>[01]); \}}",
        _REGISTERS + "{{{sl}, {sr}, false, {tr}}});",
    ),
    (_OF_32_BITS + rf"(?P<l>%\d+), (?P<r>%\d+), {_SIGNS}; \}}", _SHARED + "{{{sl}, {sr}, false, false}});"),
    (_OF_8_BITS + rf"(?P<l>%\d+), (?P<r>%\d+), {_SIGNS}; \}}", _SHARED + "{{{sl}, {sr}, false, false}});"),
    (
        _OF_8_BITS + rf"\{{(?P<l>[^}}]*)\}}, (?P<r>%\d+), {_SIGNS}; \}}",
        _REGISTERS + "{{{sl}, {sr}, false, false}});",
    ),
)
# Registers are handed on by their addresses: products write the one kind, and read the other, long after they start.
# Those of an accumulator are elements of an array, and of them the first is enough.
_PRODUCT = r"(?<=_mma_async_sync_aligned_)(?P<shape>m64n(?P<n>\d+)k\w+)"
_ACCUMULATOR = re.compile(_PRODUCT + r"\(float& __d0(?:, float& __d\d+)*")
_ACCUMULATED = re.compile(_PRODUCT + r"\((?P<array>\w+)\[(?P<first>\d+)\](?P<rest>(?:, (?P=array)\[\d+\])*)")


class UnknownInstruction(Exception):
    """PTX that the emulator has no function for."""


def translate(cuda: str) -> str:
    """A kernel's text, with an entry point for `tvm_ffi.load_module`.

    Raises
    ------
    UnknownInstruction
        Where the text has inline PTX that the emulator has no function for.
    """
    kernels = {kernel["name"]: int(kernel["threads"]) for kernel in _KERNEL.finditer(cuda)}
    if not kernels:
        raise UnknownInstruction(f"expected kernels with __launch_bounds__, found none in {len(cuda)} characters")
    host = _ASM.sub(_call, cuda).replace("uint32_t __a", "const uint32_t& __a")
    host = _ACCUMULATED.sub(_accumulated, _ACCUMULATOR.sub(r"\g<shape>(float* __d", host))
    host = _SHARED_MEMORY.sub("extern unsigned char* _ptr;", host)
    entries = "\n".join(_entry(name, threads) for name, threads in kernels.items())
    return f'#include "ptx.h"\n{host}\n{entries}'


def _entry(name: str, threads: int) -> str:
    return (
        'extern "C" __attribute__((visibility("default")))\n'
        f"int __tvm_ffi_{name}(void*, const ptx::Argument* arguments, int count, ptx::Argument*) {{\n"
        f"  return ptx::enter<{name}>({name}, arguments, count, {threads});\n}}\n"
    )


def _accumulated(match: re.Match[str]) -> str:
    """A call with an accumulator as one argument."""
    array, first, count = match["array"], int(match["first"]), int(match["n"]) // 2
    if match["rest"] != "".join(f", {array}[{k}]" for k in range(first + 1, first + count)):
        raise UnknownInstruction(f"expected {count} elements of an accumulator in turn, found {match[0]}")
    return f"{match['shape']}(&{array}[{first}]"


def _call(match: re.Match[str]) -> str:
    body, parts = match["body"], []
    while literal := _LITERAL.match(body):
        parts.append(literal[1].replace(r"\n", " "))
        body = body[literal.end() :]
    instruction = " ".join("".join(parts).split())
    operands = _OPERAND.findall(body)
    for pattern, call in _CALLS:
        if found := re.fullmatch(pattern, instruction):
            fields = found.groupdict()
            if "," in fields.get("l", ""):
                fields["l"] = fields["l"].replace("%", "&%")
            return re.sub(r"%(\d+)", lambda n: operands[int(n[1])], call.format(**fields)) + "\n"
    raise UnknownInstruction(instruction)
