"""Models of transformers, diffusers, timm and torchvision as they come, by both doors, beside PyTorch and Inductor.

    python benchmarks/models.py [NAME ...] [--device cuda] [--dtype bfloat16] [--door compile] [--size base] [--time]

Architectures come from their configurations with random weights; nothing is downloaded, and no option of a model is
changed. Each runs in a process of its own. A model is right where its largest error against float64, relative to the
largest element, is at most twice eager PyTorch's, or eight units in the last place of the dtype (`SETTLED`). Calls
are timed in turns, on a GPU in CUDA graphs; the table comes last, slower rows first. It exits with 1 where a model is
wrong.
"""

from __future__ import annotations

import argparse
import contextlib
import copy
import fcntl
import inspect
import json
import math
import os
import statistics
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

SIZES: Mapping[str, Mapping[str, int]] = {
    "small": {"width": 128, "inner": 256, "layers": 2, "heads": 4, "kv": 2, "words": 512, "batch": 2, "length": 64},
    "base": {
        "width": 2048,
        "inner": 5632,
        "layers": 4,
        "heads": 16,
        "kv": 4,
        "words": 32000,
        "batch": 4,
        "length": 1024,
    },
}

TEXT = """
    Llama Mistral Qwen2 Qwen3 Gemma Gemma2 Gemma3Text:Gemma3 Phi Phi3 Olmo Olmo2 Granite SmolLM3 Cohere Cohere2
    StableLm Starcoder2 Glm Glm4 Helium Nemotron Persimmon Ministral Exaone4 Arcee SeedOss Apertus Ernie4_5
    HunYuanDenseV1 GPT2:GPT2LMHeadModel GPTNeo GPTNeoX GPTJ GPTBigCode OPT Bloom Falcon Mpt CodeGen BioGpt XGLM
    Mamba Mamba2 RecurrentGemma Mixtral Qwen2Moe Qwen3Moe Olmoe GptOss DeepseekV2 DeepseekV3 GraniteMoe Ernie4_5_Moe
    Dots1 Glm4Moe Phimoe JetMoe
"""
"""Decoders: `…Config` and `…ForCausalLM`; where the names differ, the second, or the whole class, after a colon."""

ENCODERS = """
    Bert Roberta DistilBert Albert Electra MPNet DebertaV2 ModernBert XLMRoberta Camembert Ernie Nystromformer Funnel
    SqueezeBert FNet MobileBert RoFormer ConvBert
"""
"""Encoders of text: `…Config` and `…Model`."""

SEQUENCES = "T5 MT5 Bart MBart Pegasus Marian Blenderbot M2M100"
"""From text to text: `…Config` and `…Model`."""

IMAGES = """
    ViT DeiT Beit Dinov2 Swin Swinv2 ConvNext ConvNextV2 ResNet Segformer MobileViT PoolFormer Levit Cvt
    Dinov2WithRegisters ViTMAE IJepa
"""
"""Of images: `…Config` and `…Model`."""

TIMM = (
    "vit_tiny_patch16_224 eva02_tiny_patch14_224 mixer_s32_224 resnet18 efficientnet_b0 convnext_atto coatnet_0_rw_224"
)
TORCHVISION = "resnet18 swin_t mobilenet_v3_small regnet_y_400mf vit_b_16 densenet121"

SETTLED = 0.95
"""Share of the rows of a mixture of experts that have to be right in a narrow dtype: where two experts score alike,
rounding decides which one a token goes to, in PyTorch too."""

Built = tuple[Any, dict[str, Any]]


def _sizes_of(size: Mapping[str, int]) -> dict[str, Any]:
    return {
        "vocab_size": size["words"],
        "hidden_size": size["width"],
        "intermediate_size": size["inner"],
        "num_hidden_layers": size["layers"],
        "num_attention_heads": size["heads"],
        "num_key_value_heads": size["kv"],
        "max_position_embeddings": max(512, size["length"] + 8),
        "pad_token_id": 0,
        "bos_token_id": 1,
        "eos_token_id": 2,
    }


EXPERTS = {
    "num_local_experts": 8,
    "num_experts": 8,
    "n_routed_experts": 8,
    "num_experts_per_tok": 2,
    "n_group": 1,
    "topk_group": 1,
    "n_shared_experts": 1,
    "first_k_dense_replace": 1,
    "q_lora_rank": 32,
    "kv_lora_rank": 32,
    "qk_nope_head_dim": 32,
    "qk_rope_head_dim": 32,
    "v_head_dim": 32,
}


def _own(name: str, size: Mapping[str, int]) -> dict[str, Any]:
    """What the configuration of one architecture needs beside the sizes, or instead of them."""
    same_heads = {"num_key_value_heads": size["heads"]}
    found: dict[str, dict[str, Any]] = {
        "Mamba": {"state_size": 8},
        "Mamba2": {"num_heads": 8, "head_dim": size["width"] // 4, "n_groups": 1, "state_size": 16, "chunk_size": 32},
        "MobileBert": {"embedding_size": 64, "intra_bottleneck_size": 64, "true_hidden_size": 64},
        "GPTNeo": {"attention_types": [[["global", "local"], size["layers"] // 2]], "num_layers": size["layers"]},
        "GPTJ": {"rotary_dim": 16},
        "CodeGen": {"rotary_dim": 16},
        "RecurrentGemma": {"num_hidden_layers": 3, "head_dim": size["width"] // size["heads"]},
        "DeepseekV2": same_heads,
        "DeepseekV3": same_heads,
        "Funnel": {"block_sizes": [1] * size["layers"], "num_hidden_layers": None},
        "SqueezeBert": {"embedding_size": size["width"]},
    }
    return found.get(name, {})


def _configured(name: str, size: Mapping[str, int]) -> dict[str, Any]:
    return {key: value for key, value in {**_sizes_of(size), **_own(name, size)}.items() if value is not None}


def _text(names: str, size: Mapping[str, int]) -> Built:
    import torch
    import transformers

    first, _, second = names.partition(":")
    known = _configured(first, size)
    head = {"head_dim": max(32, size["width"] // size["heads"]), "moe_intermediate_size": size["inner"] // 2}
    config_class = getattr(transformers, f"{first}Config")
    taken = inspect.signature(config_class).parameters
    more = {name: value for name, value in {**EXPERTS, **head}.items() if name in taken}
    kind = second if second.endswith("Model") else f"{second or first}ForCausalLM"
    model = getattr(transformers, kind)(config_class(**{**more, **known}))
    return model, {"input_ids": torch.randint(3, size["words"], (size["batch"], size["length"]))}


def _encoder(name: str, size: Mapping[str, int]) -> Built:
    import torch
    import transformers

    config = getattr(transformers, f"{name}Config")(**_configured(name, size))
    ids = torch.randint(3, size["words"], (size["batch"], size["length"]))
    return getattr(transformers, f"{name}Model")(config), {"input_ids": ids}


def _sequence(name: str, size: Mapping[str, int]) -> Built:
    import torch
    import transformers

    width, inner, layers, heads = (size[key] for key in ("width", "inner", "layers", "heads"))
    sizes = {"vocab_size": size["words"], "d_model": width, "pad_token_id": 0, "decoder_start_token_id": 1}
    if "T5" in name:
        sizes |= {"d_ff": inner, "num_layers": layers, "num_heads": heads, "d_kv": width // heads}
    else:
        for side in ("encoder", "decoder"):
            sizes |= {f"{side}_layers": layers, f"{side}_attention_heads": heads, f"{side}_ffn_dim": inner}
    given, asked = (torch.randint(3, size["words"], (size["batch"], n)) for n in (size["length"], size["length"] // 2))
    config = getattr(transformers, f"{name}Config")(**sizes)
    return getattr(transformers, f"{name}Model")(config), {"input_ids": given, "decoder_input_ids": asked}


def _whisper(size: Mapping[str, int]) -> Built:
    import torch
    import transformers

    sizes = {"vocab_size": size["words"], "d_model": size["width"], "pad_token_id": 0, "decoder_start_token_id": 1}
    for side in ("encoder", "decoder"):
        sizes |= {f"{side}_layers": size["layers"], f"{side}_attention_heads": size["heads"]}
        sizes |= {f"{side}_ffn_dim": size["inner"]}
    model = transformers.WhisperModel(transformers.WhisperConfig(**sizes, max_source_positions=100))
    heard, asked = torch.randn(size["batch"], 80, 200), torch.randint(3, size["words"], (size["batch"], 32))
    return model, {"input_features": heard, "decoder_input_ids": asked}


def _image(name: str, size: Mapping[str, int]) -> Built:
    import torch
    import transformers

    config = getattr(transformers, f"{name}Config")()
    if isinstance(getattr(config, "num_hidden_layers", None), int) and not hasattr(config, "depths"):
        config.num_hidden_layers = size["layers"]
    side = config.image_size if isinstance(getattr(config, "image_size", None), int) else 224
    example = {"pixel_values": torch.randn(size["batch"], 3, side, side)}
    if name == "ViTMAE":
        patches = (side // config.patch_size) ** 2  # what to mask, in an order without ties, or it draws one
        example["noise"] = torch.stack([torch.randperm(patches).float() for _ in range(size["batch"])])
    return getattr(transformers, f"{name}Model")(config), example


def _timm(name: str, size: Mapping[str, int]) -> Built:
    import timm
    import torch

    return timm.create_model(name, pretrained=False), {"x": torch.randn(size["batch"], 3, 224, 224)}


def _torchvision(name: str, size: Mapping[str, int]) -> Built:
    import torch
    import torchvision

    model = getattr(torchvision.models, name)(weights=None)
    return model, {"x": torch.randn(size["batch"], 3, 224, 224)}


def _unet(size: Mapping[str, int]) -> Built:
    import diffusers
    import torch

    model = diffusers.UNet2DConditionModel(
        sample_size=16,
        block_out_channels=(32, 64),
        layers_per_block=1,
        cross_attention_dim=64,
        norm_num_groups=8,
        attention_head_dim=8,
        down_block_types=("CrossAttnDownBlock2D", "DownBlock2D"),
        up_block_types=("UpBlock2D", "CrossAttnUpBlock2D"),
    )
    batch = size["batch"]
    example = {"sample": torch.randn(batch, 4, 16, 16), "timestep": torch.full((batch,), 7)}
    return model, {**example, "encoder_hidden_states": torch.randn(batch, 20, 64)}


def _dit(size: Mapping[str, int]) -> Built:
    import diffusers
    import torch

    model = diffusers.DiTTransformer2DModel(num_attention_heads=4, attention_head_dim=32, num_layers=2, sample_size=16)
    batch = size["batch"]
    example = {"hidden_states": torch.randn(batch, 4, 16, 16), "timestep": torch.full((batch,), 7)}
    return model, {**example, "class_labels": torch.arange(batch)}


def _vae(size: Mapping[str, int]) -> Built:
    import diffusers
    import torch

    kinds = {"down_block_types": ("DownEncoderBlock2D",) * 2, "up_block_types": ("UpDecoderBlock2D",) * 2}
    model = diffusers.AutoencoderKL(block_out_channels=(32, 64), norm_num_groups=8, **kinds)
    return model, {"sample": torch.randn(size["batch"], 3, 32, 32)}


MODELS: Mapping[str, Callable[[Mapping[str, int]], Built]] = {
    **{name.split(":")[0]: partial(_text, name) for name in TEXT.split()},
    **{name: partial(_encoder, name) for name in ENCODERS.split()},
    **{name: partial(_sequence, name) for name in SEQUENCES.split()},
    "Whisper": _whisper,
    **{name: partial(_image, name) for name in IMAGES.split()},
    **{f"timm.{name}": partial(_timm, name) for name in TIMM.split()},
    **{f"torchvision.{name}": partial(_torchvision, name) for name in TORCHVISION.split()},
    "diffusers.UNet2DCondition": _unet,
    "diffusers.DiT": _dit,
    "diffusers.AutoencoderKL": _vae,
}


def error_of(found: Any, exact: Any, share: float = 1.0) -> float:
    """The largest error of any floating-point leaf, relative to its largest element, in this share of its rows."""
    import torch
    from torch.utils import _pytree as pytree

    errors = [0.0]
    for one, other in zip(pytree.tree_leaves(found), pytree.tree_leaves(exact), strict=True):
        if isinstance(other, torch.Tensor) and other.is_floating_point() and other.numel():
            scale = other.abs().max().item() or 1.0
            rows = (one.double() - other.double()).abs().reshape(-1, other.shape[-1] if other.dim() else 1).amax(-1)
            errors.append(rows.quantile(share, interpolation="lower").item() / scale)
    return max(errors, key=lambda error: math.inf if math.isnan(error) else error)


def measure_one(name: str, given: argparse.Namespace) -> dict[str, Any]:
    """What became of one model."""
    import torch

    import tvm_cascade
    from tvm_cascade.torch.backend import FallbackWarning

    torch.manual_seed(0)
    torch.set_grad_enabled(False)
    model, example = MODELS[name](SIZES[given.size])
    for parameter in model.parameters():
        if parameter.dim() > 1 and not parameter.any():
            parameter.normal_(std=0.02)  # a router of zeros makes every choice a tie, which no result follows from
    model, dtype = model.eval().to(given.device), getattr(torch, given.dtype)
    example = {key: value.to(given.device) for key, value in example.items()}

    def cast(values: Any, kind: Any) -> Any:
        return {key: one.to(kind) if one.is_floating_point() else one for key, one in values.items()}

    model, example = model.to(dtype), cast(example, dtype)

    def call(module: Any, values: Any) -> Any:
        return module(*values.values()) if set(values) == {"x"} else module(**values)

    eager = call(copy.deepcopy(model), example)
    reference = copy.deepcopy(model).double()
    if hasattr(reference, "set_experts_implementation"):
        reference.set_experts_implementation("eager")  # PyTorch's grouped products take no float64
    torch.set_default_dtype(torch.float64)
    exact = call(reference, cast(example, torch.float64))
    torch.set_default_dtype(torch.float32)
    row: dict[str, Any] = {"model": name, "eager error": error_of(eager, exact)}
    start, told = (time.perf_counter(), time.process_time()), ""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", FallbackWarning)
        if given.door == "optimize":
            arguments = tuple(example.values()) if set(example) == {"x"} else example
            ours = tvm_cascade.optimize(model, arguments, cut=True)
        else:
            ours = torch.compile(model, backend="tvm_cascade")
        found = call(ours, example)
        told = next((str(one.message) for one in caught if issubclass(one.category, FallbackWarning)), "")
    row |= {"compile": time.perf_counter() - start[0], "compile cpu": time.process_time() - start[1], "fallback": told}
    row["error"] = error_of(found, exact)
    routed = dtype != torch.float32 and hasattr(getattr(model, "config", None), "num_experts_per_tok")
    counted = error_of(found, exact, SETTLED if routed else 1.0)
    row["right"] = counted <= max(2 * row["eager error"], 8 * torch.finfo(dtype).eps)
    if given.time:
        row |= _timed(model, ours, lambda module: call(module, example), given)
    return row


def _timed(model: Any, ours: Any, call: Callable[[Any], Any], given: argparse.Namespace) -> dict[str, Any]:
    import torch

    start = time.perf_counter()
    inductor = torch.compile(copy.deepcopy(model))
    call(inductor)
    row = {"inductor compile": time.perf_counter() - start}
    with _one_at_a_time():
        return row | _in_turns({"eager": model, "inductor": inductor, "ours": ours}, call, given)


@contextlib.contextmanager
def _one_at_a_time() -> Iterator[None]:
    """No other process of this benchmark is timed meanwhile."""
    with (Path(tempfile.gettempdir()) / "tvm_cascade_models.lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _in_turns(peers: Mapping[str, Any], call: Callable[[Any], Any], given: argparse.Namespace) -> dict[str, Any]:
    """The median time of each peer's call, in seconds; of those that no CUDA graph can hold, launches included."""
    import torch

    runs: dict[str, Callable[[], Any]] = {peer: partial(call, one) for peer, one in peers.items()}
    loose = list[str]()
    for peer, one in peers.items() if given.device == "cuda" else ():
        try:
            runs[peer] = _graphed(call, one)
        except RuntimeError:  # a copy between devices, or another call that no graph may have
            torch.cuda.synchronize()
            loose.append(peer)
    times: dict[str, list[float]] = {peer: [] for peer in runs}
    for repeat in range(25):
        for peer, run in runs.items():
            if given.device == "cuda":
                torch.cuda.synchronize()
            start = time.perf_counter()
            run()
            if given.device == "cuda":
                torch.cuda.synchronize()
            if repeat >= 5:
                times[peer].append(time.perf_counter() - start)
    return {"without a graph": loose, **{peer: statistics.median(several) for peer, several in times.items()}}


def _graphed(call: Callable[[Any], Any], module: Any) -> Callable[[], None]:
    import torch

    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(3):
            call(module)
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        call(module)
    return graph.replay


def apart(name: str, arguments: Sequence[str], limit: float) -> dict[str, Any]:
    """What became of one model, in a process of its own."""
    command = [sys.executable, __file__, "--one", name, *arguments]
    environment = {"TVM_CASCADE_CACHE": "0", **os.environ}
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=limit, env=environment, check=False)
    except subprocess.TimeoutExpired:
        return {"model": name, "failed": f"not done in {limit:.0f} s"}
    rows = [line for line in done.stdout.splitlines() if line.startswith("{")]
    return json.loads(rows[-1]) if rows else {"model": name, "failed": " ".join(done.stderr.strip().splitlines()[-4:])}


def table(rows: Sequence[Mapping[str, Any]]) -> str:
    """What failed and what is wrong first, then slower rows."""

    def ratio(row: Mapping[str, Any], peer: str) -> float:
        return row[peer] / row["ours"] if peer in row else math.nan

    def place(row: Mapping[str, Any]) -> tuple[bool, bool, float]:
        return "failed" not in row, bool(row.get("right")), min(map(lambda p: ratio(row, p), ("eager", "inductor")))

    columns = "| model | right | error | eager's | eager over ours | Inductor over ours | compile s | Inductor's |"
    lines = [columns, "|---" * 8 + "|"]
    for row in sorted(rows, key=place):
        if "failed" in row:
            lines.append(f"| {row['model']} | failed: {row['failed'][:160]} |" + " |" * 6)
            continue
        numbers = (
            f"{row['error']:.1e} | {row['eager error']:.1e} | {ratio(row, 'eager'):.2f} | {ratio(row, 'inductor'):.2f}"
        )
        compiled = f"{row['compile']:.1f} | {row.get('inductor compile', math.nan):.1f}"
        mark = ("yes" if row["right"] else "WRONG") + (", in parts" if row["fallback"] else "")
        mark += f" ({', '.join(row['without a graph'])} without a graph)" if row.get("without a graph") else ""
        lines.append(f"| {row['model']} | {mark} | {numbers} | {compiled} |")
    for peer in ("eager", "inductor"):
        known = [ratio(row, peer) for row in rows if peer in row]
        if known:
            lines.append(f"\n{peer} over ours: {statistics.geometric_mean(known):.2f} in geomean of {len(known)}")
    right = sum(bool(row.get("right")) for row in rows)
    return "\n".join([*lines, f"\n{right} of {len(rows)} right"])


def main() -> int:
    """The table; 1 where a model is wrong."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("words", nargs="*", help="names of models; all by default")
    parser.add_argument("--device", default="cpu", choices=["cpu", "cuda"])
    parser.add_argument("--dtype", default="float32")
    parser.add_argument("--door", default="optimize", choices=["optimize", "compile"])
    parser.add_argument("--size", default="small", choices=sorted(SIZES))
    parser.add_argument("--time", action="store_true", help="calls and Inductor's compilation too")
    parser.add_argument("--jobs", type=int, default=1, help="processes at once; one at a time is timed")
    parser.add_argument("--limit", type=float, default=900, help="seconds a model may take")
    parser.add_argument("--json", type=Path, help="written, a line each")
    parser.add_argument("--one", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.one:
        print(json.dumps(measure_one(given.one, given)), flush=True)
        return 0
    options = ["--device", given.device, "--dtype", given.dtype, "--door", given.door, "--size", given.size]
    options += ["--time"] if given.time else []
    rows = []
    with ThreadPoolExecutor(given.jobs) as pool:
        for row in pool.map(lambda name: apart(name, options, given.limit), given.words or MODELS):
            rows.append(row)
            print(json.dumps(row), file=sys.stderr, flush=True)
            if given.json:
                given.json.open("a").write(json.dumps(row) + "\n")
    print(table(rows))
    return int(any("failed" not in row and not row["right"] for row in rows))


if __name__ == "__main__":
    sys.exit(main())
