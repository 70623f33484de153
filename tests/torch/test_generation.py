"""Generation: prompt and next tokens compiled apart, with a cache of the module's own, or one of transformers."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402
from torch.nn import functional as F  # noqa: E402

import tvm_cascade  # noqa: E402
from tvm_cascade.errors import ModelError  # noqa: E402

LAYERS, HEADS, SHARED, WIDTH, VOCABULARY, LONGEST = 2, 4, 2, 32, 40, 24
FEATURES = WIDTH // HEADS


def rotated(x: Any, positions: Any) -> Any:
    half = FEATURES // 2
    angle = positions[:, None] * 100.0 ** (-torch.arange(half) / half)
    left, right = x.chunk(2, -1)
    return torch.cat([left * angle.cos() - right * angle.sin(), right * angle.cos() + left * angle.sin()], -1)


class Layer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.query, self.out = nn.Linear(WIDTH, WIDTH, bias=False), nn.Linear(WIDTH, WIDTH, bias=False)
        self.key, self.value = (nn.Linear(WIDTH, SHARED * FEATURES, bias=False) for _ in range(2))
        self.gate, self.up = (nn.Linear(WIDTH, 64, bias=False) for _ in range(2))
        self.down = nn.Linear(64, WIDTH, bias=False)
        self.norms = nn.ModuleList(nn.RMSNorm(WIDTH) for _ in range(2))
        for name in ("keys", "values"):
            self.register_buffer(name, torch.zeros(1, SHARED, LONGEST, FEATURES))

    def forward(self, x: Any, positions: Any) -> Any:
        normed = self.norms[0](x)
        q = rotated(self.query(normed).unflatten(-1, (HEADS, -1)).transpose(1, 2), positions)
        k = rotated(self.key(normed).unflatten(-1, (SHARED, -1)).transpose(1, 2), positions)
        self.keys.index_copy_(2, positions, k)
        self.values.index_copy_(2, positions, self.value(normed).unflatten(-1, (SHARED, -1)).transpose(1, 2))
        seen = torch.arange(LONGEST) <= positions[:, None]
        mixed = F.scaled_dot_product_attention(q, self.keys, self.values, seen, enable_gqa=True)
        x = x + self.out(mixed.transpose(1, 2).flatten(2))
        normed = self.norms[1](x)
        return x + self.down(F.silu(self.gate(normed)) * self.up(normed))


class Decoder(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(VOCABULARY, WIDTH)
        self.layers = nn.ModuleList(Layer() for _ in range(LAYERS))
        self.norm, self.head = nn.RMSNorm(WIDTH), nn.Linear(WIDTH, VOCABULARY, bias=False)

    def forward(self, tokens: Any, positions: Any) -> Any:
        x = self.embedding(tokens)
        for layer in self.layers:
            x = layer(x, positions)
        return self.head(self.norm(x[:, -1]))


def generated(first: Any, following: Any, prompt: Any, count: int) -> list[int]:
    tokens = [int(first(prompt, torch.arange(prompt.shape[1])).argmax())]
    while len(tokens) < count:
        at = torch.tensor([prompt.shape[1] + len(tokens) - 1])
        tokens.append(int(following(torch.tensor([tokens[-1:]]), at).argmax()))
    return tokens


@torch.no_grad()
def test_greedy_tokens_are_those_of_pytorch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TVM_CASCADE_BUCKETS", "1")  # a kernel for all lengths
    torch.manual_seed(3)
    decoder = Decoder().eval()
    length = torch.export.Dim("length", min=2, max=LONGEST)
    prompt = torch.randint(0, VOCABULARY, (1, 5))
    dynamic = {"tokens": {1: length}, "positions": {0: length}}
    first = tvm_cascade.optimize(decoder, (prompt, torch.arange(5)), dynamic=dynamic)
    following = tvm_cascade.optimize(decoder, (prompt[:, :1], torch.tensor([5])))
    for prompt_length in (5, 9):
        prompt = torch.randint(0, VOCABULARY, (1, prompt_length))
        ours = generated(first, following, prompt, 10)
        cache = decoder.layers[1].keys.clone()
        assert ours == generated(decoder, decoder, prompt, 10)
        assert len(set(ours)) > 2
        written = (cache - decoder.layers[1].keys).abs().amax((0, 1, 3)) < 1e-5
        assert written[: prompt_length + 9].all() and cache[:, :, : prompt_length + 9].abs().amin() > 0


@pytest.fixture(scope="module")
def transformers() -> Any:
    return pytest.importorskip("transformers")


def llama(transformers: Any) -> Any:
    torch.manual_seed(4)
    sizes = {"vocab_size": VOCABULARY, "hidden_size": WIDTH, "intermediate_size": 64, "num_attention_heads": HEADS}
    further = {"num_hidden_layers": 1, "num_key_value_heads": SHARED, "max_position_embeddings": LONGEST}
    return transformers.LlamaForCausalLM(transformers.LlamaConfig(**sizes, **further)).eval()


def close(found: Any, expected: Any) -> None:
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-5)


def cache_of(result: Any) -> Any:
    return result["cache"] if "cache" in result else result["past_key_values"]


@torch.no_grad()
def test_a_cache_of_transformers_grows_call_by_call(transformers: Any) -> None:
    model, prompt = llama(transformers), torch.randint(0, VOCABULARY, (1, 5))
    found, expected = tvm_cascade.optimize(model, {"input_ids": prompt})(input_ids=prompt), model(input_ids=prompt)
    ours, theirs = cache_of(found), cache_of(expected)
    assert type(found) is type(expected) and type(ours) is type(theirs)
    close(found.logits, expected.logits)
    name = next(key for key in found if key != "logits")
    following = tvm_cascade.optimize(
        model,
        {name: ours, "input_ids": prompt[:, :1]},
        dynamic={name: [{2: torch.export.Dim("seen", min=2, max=LONGEST)}] * 2, "input_ids": None},
    )
    for length in (6, 7, 8):
        token = torch.randint(0, VOCABULARY, (1, 1))
        found = following(input_ids=token, **{name: ours})
        close(found.logits, model(input_ids=token, **{name: theirs}).logits)
        assert cache_of(found) is ours and ours.get_seq_length() == theirs.get_seq_length() == length
        close(ours.layers[0].keys, theirs.layers[0].keys)
    with pytest.raises(ModelError, match=r"(?s)float32 \[1, 2, seen, 8\] where seen is from 2 to 24"):
        following(input_ids=token, **{name: transformers.DynamicCache([(torch.zeros(1, SHARED, 1, 8),) * 2])})


@pytest.mark.slow
@torch.no_grad()
def test_a_static_cache_of_transformers_is_written_to(transformers: Any) -> None:
    model, token = llama(transformers), torch.tensor([[3]])
    ours, theirs = (transformers.StaticCache(config=model.config, max_cache_len=8) for _ in range(2))
    for cache in (ours, theirs):
        model(input_ids=torch.tensor([[1, 4, 2]]), cache=cache)
    optimized = tvm_cascade.optimize(model, {"input_ids": token, "cache": ours})
    for _ in range(2):
        close(optimized(input_ids=token, cache=ours).logits, model(input_ids=token, cache=theirs).logits)
        close(ours.layers[0].values, theirs.layers[0].values)
        assert ours.get_seq_length() == theirs.get_seq_length()


@pytest.mark.slow
@torch.no_grad()
def test_encoder_and_decoder_have_a_cache_each(transformers: Any) -> None:
    sizes = {"vocab_size": VOCABULARY, "d_model": WIDTH, "d_kv": FEATURES, "d_ff": 64, "num_heads": HEADS}
    config = transformers.T5Config(**sizes, num_layers=1, decoder_start_token_id=0)
    model, tokens = transformers.T5ForConditionalGeneration(config).eval(), torch.randint(2, VOCABULARY, (1, 6))
    first = {"input_ids": tokens, "decoder_input_ids": tokens[:, :3]}
    found, expected = tvm_cascade.optimize(model, first)(**first), model(**first)
    close(found.logits, expected.logits)
    second = {"encoder_outputs": (found.encoder_last_hidden_state,), "decoder_input_ids": tokens[:, 3:4]}
    found, expected = cache_of(found), cache_of(expected)
    optimized = tvm_cascade.optimize(model, {**second, "cache": found})
    close(optimized(**second, cache=found).logits, model(**second, cache=expected).logits)
    assert type(found) is type(expected) and found.get_seq_length() == expected.get_seq_length() == 4
