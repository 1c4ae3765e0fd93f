#!/usr/bin/env python3
# SPDX-FileCopyrightText: The mics authors
# SPDX-License-Identifier: Apache-2.0
"""Makes tests/golden/{llama,mistral,qwen2,qwen3,gpt_neox,mixtral,qwen2_moe,qwen3_moe}_*: small random models of these
families and what training them must give; tests/golden/rope.json: frequencies of rotary embeddings;
and tests/golden/stacked: two of the models as transformers 5 writes them where it keeps the experts
of a layer as one tensor (save_original_format=False).

The reference is Hugging Face transformers, run on the CPU in float64 with eager attention and no
dropout, as tools/make_gpt2_golden.py has it. Half of the configurations are written as transformers
4 spells them (rope_theta and rope_scaling), half as 5 does (rope_parameters).

    pip install torch numpy safetensors transformers
    tools/make_decoder_golden.py [OUT [NAME...]]  # OUT: tests/golden of this repository
"""

import json
import pathlib
import shutil
import sys
import tempfile

import torch
from safetensors.torch import save_file
from transformers import AutoConfig, AutoModelForCausalLM
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

import make_gpt2_golden as gpt2

VOCAB = 97
LLAMA3 = {"rope_type": "llama3", "rope_theta": 500.0, "factor": 8.0, "low_freq_factor": 1.0,
          "high_freq_factor": 4.0, "original_max_position_embeddings": 12}
YARN = {"rope_type": "yarn", "rope_theta": 300.0, "factor": 4.0,
        "original_max_position_embeddings": 8}

# Odd numbers on purpose: grouped heads, one key-value head for all, heads of 40, a window that ends
# amid the sequence, biases, tied tables. `old`: spelt as by transformers 4.
VARIANTS = {
    "llama_grouped": dict(
        model_type="llama", seed=30, batch=2, tokens=17, max_norm=1.0, old=False, hidden_size=24,
        intermediate_size=31, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
        head_dim=40, max_position_embeddings=48, rms_norm_eps=1e-5, attention_bias=True,
        mlp_bias=True, rope_parameters=LLAMA3),
    "llama_single": dict(
        model_type="llama", seed=31, batch=3, tokens=11, max_norm=1.5, old=True, hidden_size=30,
        intermediate_size=43, num_hidden_layers=2, num_attention_heads=3, num_key_value_heads=1,
        max_position_embeddings=19, tie_word_embeddings=True,
        rope_parameters={"rope_type": "linear", "rope_theta": 1000.0, "factor": 2.5}),
    "llama_yarn": dict(
        model_type="llama", seed=32, batch=2, tokens=13, max_norm=1.0, old=True, hidden_size=20,
        intermediate_size=23, num_hidden_layers=1, num_attention_heads=2, max_position_embeddings=32,
        rope_parameters=YARN),
    "mistral_window": dict(
        model_type="mistral", seed=33, batch=2, tokens=17, max_norm=1.0, old=True, hidden_size=20,
        intermediate_size=33, num_hidden_layers=2, num_attention_heads=6, num_key_value_heads=2,
        head_dim=40, max_position_embeddings=40, sliding_window=5,
        rope_parameters={"rope_type": "default", "rope_theta": 700.0}),
    "mistral_full": dict(
        model_type="mistral", seed=34, batch=3, tokens=9, max_norm=1.2, old=False, hidden_size=25,
        intermediate_size=27, num_hidden_layers=2, num_attention_heads=5, num_key_value_heads=1,
        head_dim=6, max_position_embeddings=11, sliding_window=None, tie_word_embeddings=True),
    "qwen2_layers": dict(
        model_type="qwen2", seed=35, batch=2, tokens=15, max_norm=1.0, old=False, hidden_size=24,
        intermediate_size=29, num_hidden_layers=3, num_attention_heads=4, num_key_value_heads=2,
        max_position_embeddings=21, tie_word_embeddings=True, use_sliding_window=True,
        sliding_window=4, max_window_layers=1),
    "qwen2_single": dict(
        model_type="qwen2", seed=36, batch=2, tokens=10, max_norm=1.0, old=True, hidden_size=22,
        intermediate_size=35, num_hidden_layers=1, num_attention_heads=2, num_key_value_heads=1,
        head_dim=40, max_position_embeddings=16,
        rope_parameters={"rope_type": "default", "rope_theta": 1000000.0}),
    "qwen3_grouped": dict(
        model_type="qwen3", seed=37, batch=2, tokens=14, max_norm=1.0, old=True, hidden_size=21,
        intermediate_size=25, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
        head_dim=40, max_position_embeddings=25, attention_bias=True),
    "qwen3_single": dict(
        model_type="qwen3", seed=38, batch=3, tokens=9, max_norm=1.0, old=False, hidden_size=12,
        intermediate_size=39, num_hidden_layers=2, num_attention_heads=5, num_key_value_heads=1,
        head_dim=8, max_position_embeddings=9, tie_word_embeddings=True, use_sliding_window=True,
        sliding_window=3, layer_types=["sliding_attention", "full_attention"]),
    "gpt_neox_parallel": dict(
        model_type="gpt_neox", seed=39, batch=2, tokens=17, max_norm=1.0, old=False, hidden_size=36,
        intermediate_size=50, num_hidden_layers=2, num_attention_heads=3,
        max_position_embeddings=18,
        rope_parameters={"rope_type": "default", "rope_theta": 10000.0,
                         "partial_rotary_factor": 0.5}),
    "gpt_neox_serial": dict(
        model_type="gpt_neox", seed=40, batch=3, tokens=8, max_norm=1.0, old=True, hidden_size=80,
        intermediate_size=21, num_hidden_layers=1, num_attention_heads=2,
        max_position_embeddings=13, use_parallel_residual=False, hidden_act="gelu_new",
        tie_word_embeddings=True,
        rope_parameters={"rope_type": "default", "rope_theta": 500.0,
                         "partial_rotary_factor": 0.25}),
    "mixtral_small": dict(
        model_type="mixtral", seed=41, batch=2, tokens=15, max_norm=1.0, old=True, hidden_size=24,
        intermediate_size=13, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
        max_position_embeddings=24, num_local_experts=5, num_experts_per_tok=2,
        rope_parameters={"rope_type": "default", "rope_theta": 900.0}),
    "mixtral_balanced": dict(
        model_type="mixtral", seed=42, batch=1, tokens=24, max_norm=1.0, old=False, hidden_size=18,
        intermediate_size=11, num_hidden_layers=1, num_attention_heads=3, num_key_value_heads=1,
        max_position_embeddings=24, num_local_experts=4, num_experts_per_tok=2,
        tie_word_embeddings=True, output_router_logits=True, router_aux_loss_coef=0.5),
    "qwen3_moe_layers": dict(
        model_type="qwen3_moe", seed=43, batch=2, tokens=12, max_norm=1.0, old=False,
        hidden_size=18, intermediate_size=23, moe_intermediate_size=9, num_hidden_layers=4,
        num_attention_heads=2, num_key_value_heads=1, head_dim=10, max_position_embeddings=16,
        num_experts=6, num_experts_per_tok=3, decoder_sparse_step=2, mlp_only_layers=[3]),
    "qwen3_moe_normalised": dict(
        model_type="qwen3_moe", seed=44, batch=2, tokens=12, max_norm=1.0, old=False,
        hidden_size=16, intermediate_size=23, moe_intermediate_size=12, num_hidden_layers=1,
        num_attention_heads=2, num_key_value_heads=2, head_dim=8, max_position_embeddings=16,
        num_experts=8, num_experts_per_tok=4, norm_topk_prob=True, tie_word_embeddings=True),
    "qwen2_moe_shared": dict(
        model_type="qwen2_moe", seed=45, batch=2, tokens=13, max_norm=1.0, old=False,
        hidden_size=20, intermediate_size=17, moe_intermediate_size=9,
        shared_expert_intermediate_size=14, num_hidden_layers=3, num_attention_heads=2,
        num_key_value_heads=1, max_position_embeddings=16, num_experts=5, num_experts_per_tok=3,
        mlp_only_layers=[0]),
}

STACKED = ("mixtral_small", "qwen3_moe_layers")

# Published shapes of the rotary embeddings, and odd ones.
ROPES = [
    dict(dim=128, positions=4096, theta=10000.0),
    dict(dim=40, positions=2048, theta=10000.0, rope_type="linear", factor=3.0),
    dict(dim=64, positions=2048, theta=10000.0, rope_type="dynamic", factor=4.0),
    dict(dim=128, positions=131072, theta=500000.0, rope_type="llama3", factor=8.0,
         low_freq_factor=1.0, high_freq_factor=4.0, original_max_position_embeddings=8192),
    dict(dim=64, positions=131072, theta=500000.0, rope_type="llama3", factor=32.0,
         low_freq_factor=1.0, high_freq_factor=4.0, original_max_position_embeddings=8192),
    dict(dim=128, positions=131072, theta=1000000.0, rope_type="yarn", factor=4.0,
         original_max_position_embeddings=32768),
    dict(dim=40, positions=16384, theta=10000.0, rope_type="yarn", factor=16.0, beta_fast=16.0,
         beta_slow=2.0, original_max_position_embeddings=1024, truncate=False),
    dict(dim=64, positions=163840, theta=10000.0, rope_type="yarn", factor=40.0, mscale=1.0,
         mscale_all_dim=0.8, original_max_position_embeddings=4096),
    dict(dim=10, positions=64, theta=100.0, rope_type="yarn", factor=2.0, attention_factor=1.25,
         original_max_position_embeddings=32),
]

OWN = ("seed", "batch", "tokens", "max_norm", "old")


def make_model(variant, generator):
    """A float32-representable model: no weight, bias or gain that a wrong kernel could ignore."""
    fields = {key: value for key, value in variant.items() if key not in OWN}
    if "rope_parameters" in fields:
        fields["rope_parameters"] = dict(fields["rope_parameters"])
    config = AutoConfig.for_model(**fields, vocab_size=VOCAB, bos_token_id=0, eos_token_id=0)
    model = AutoModelForCausalLM.from_config(config, attn_implementation="eager", experts_implementation="eager").eval()
    with torch.no_grad():
        for name, weight in model.named_parameters():
            noise = 0.08 * torch.randn(weight.shape, generator=generator)
            is_gain = "norm" in name and name.endswith("weight")
            # Scores that tell positions apart, and inputs where GELUs by erf and by tanh differ.
            is_large = any(part in name for part in ("q_proj", "k_proj", "query_key", "mlp.dense",
                                                     "mlp.gate.", "experts."))
            weight.copy_(1.0 + 2.0 * noise if is_gain else 4.0 * noise if is_large else noise)
    return model


def check_folder(folder, inputs, logits):
    """That transformers reads the folder as the model that it was written from."""
    model = AutoModelForCausalLM.from_pretrained(folder, attn_implementation="eager", experts_implementation="eager",
                                                 dtype=torch.float64).eval()
    with torch.no_grad():
        off = (model(inputs).logits - logits).abs().max()
    assert off < 1e-5, f"{folder}: read again, logits differ by {off}"


def spell_as_before(fields, variant):
    """Keys of rotary embeddings as transformers 4 wrote them."""
    rope = dict(fields.pop("rope_parameters"))
    theta, fraction = rope.pop("rope_theta"), rope.pop("partial_rotary_factor", None)
    if variant["model_type"] == "gpt_neox":
        fields |= {"rotary_emb_base": theta, "rotary_pct": fraction}
    else:
        fields["rope_theta"] = theta
    if variant["seed"] % 2 == 0:
        rope["type"] = rope.pop("rope_type")
    fields["rope_scaling"] = rope if len(rope) > 1 else None


def save_config(folder, config, variant):
    """config.json without the versions of the tools that made it."""
    fields = config.to_dict()
    for key in ("transformers_version", "dtype", "torch_dtype", "_attn_implementation",
                "_experts_implementation",
                "_name_or_path", "architectures", "id2label", "label2id", "problem_type",
                "return_dict", "output_attentions", "output_hidden_states",
                "chunk_size_feed_forward", "is_encoder_decoder", "classifier_dropout"):
        fields.pop(key, None)
    if variant["old"]:
        spell_as_before(fields, variant)
        if "head_dim" not in variant:
            fields.pop("head_dim", None)
    (folder / "config.json").write_text(json.dumps(fields, indent=2, sort_keys=True) + "\n")


def tensor_names(model):
    """By torch's name, the name that the file has for it."""
    names = {name: name for name, _ in model.named_parameters()}
    if "lm_head.weight" in names and model.config.model_type == "gpt_neox":
        names["lm_head.weight"] = "embed_out.weight"
    if model.config.model_type == "mixtral":
        names = {name: stored.replace(".mlp.gate.", ".block_sparse_moe.gate.")
                 for name, stored in names.items()}
    return names


def stored(config, name, tensor):
    """What files have of a tensor: of those of all experts one an expert and matrix."""
    if ".experts." not in name:
        return {name: tensor.clone()}
    mixtral = config.model_type == "mixtral"
    module = name.split(".experts.")[0]
    if mixtral:
        module = module.replace(".mlp", ".block_sparse_moe")
    parts = {"gate_up_proj": ("w1", "w3") if mixtral else ("gate_proj", "up_proj"),
             "down_proj": ("w2",) if mixtral else ("down_proj",)}[name.split(".")[-1]]
    return {f"{module}.experts.{e}.{part}.weight": rows.clone()
            for e, expert in enumerate(tensor)
            for part, rows in zip(parts, expert.chunk(len(parts)))}


def all_stored(config, names, tensors):
    """The same of all, by torch's name."""
    files = {}
    for name, tensor in tensors.items():
        files |= stored(config, names[name], tensor)
    return files


def balance(model, inputs):
    """The loss that balances a mixture's experts, where the configuration asks for it."""
    config = model.config
    if not getattr(config, "output_router_logits", False):
        return 0.0
    from transformers.models.mixtral.modeling_mixtral import load_balancing_loss_func
    scores = model(inputs, output_router_logits=True).router_logits
    return config.router_aux_loss_coef * load_balancing_loss_func(
        scores, config.num_local_experts, config.num_experts_per_tok)


def make(folder, variant):
    folder.mkdir(parents=True, exist_ok=True)
    generator = torch.Generator().manual_seed(variant["seed"])
    model = make_model(variant, generator)
    inputs, targets = gpt2.make_batches(variant | {"vocab_size": VOCAB}, generator)
    names = tensor_names(model)
    weights = all_stored(model.config, names,
                         {n: w.detach() for n, w in model.named_parameters()})
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    save_config(folder, model.config, variant)
    golden = {"inputs": inputs, "targets": targets}
    golden |= gpt2.train(model.double(), inputs, targets, variant["max_norm"], balance)
    check_folder(folder, inputs[0], golden["logits"])
    golden = {n: t.to(torch.float32).contiguous() for n, t in golden.items()
              if not n.startswith("final.")}
    grads = {name: golden.pop(f"grad.{name}") for name in names}
    golden |= {f"grad.{name}": grad.contiguous()
               for name, grad in all_stored(model.config, names, grads).items()}
    save_file(golden, folder / "golden.safetensors")
    for file in folder.iterdir():
        file.chmod(0o644)
    print(f"{folder}: loss {golden['losses'][0]:.4f} to {golden['losses'][-1]:.4f}, "
          f"gradient norm {golden['grad_norms'].min():.3f} to {golden['grad_norms'].max():.3f}, "
          f"{sum(f.stat().st_size for f in folder.iterdir())} bytes")


def make_stacked(out, name):
    """The file of a golden folder's model, experts stacked."""
    model = AutoModelForCausalLM.from_pretrained(out / name)
    with tempfile.TemporaryDirectory() as folder:
        model.save_pretrained(folder, save_original_format=False)
        again = AutoModelForCausalLM.from_pretrained(folder)
        assert all(torch.equal(a, b) for a, b in zip(model.parameters(), again.parameters()))
        (out / "stacked").mkdir(exist_ok=True)
        shutil.copyfile(pathlib.Path(folder) / "model.safetensors",
                        out / "stacked" / (name + ".safetensors"))


def frequencies(rope):
    """The frequencies and the scale that transformers computes for a Llama with such heads."""
    rope = dict(rope)
    dim, positions, theta = rope.pop("dim"), rope.pop("positions"), rope.pop("theta")
    parameters = {"rope_type": "default", "rope_theta": theta} | rope
    config = AutoConfig.for_model("llama", hidden_size=dim, num_attention_heads=1, head_dim=dim,
                                  max_position_embeddings=positions,
                                  rope_parameters=dict(parameters))
    if parameters["rope_type"] == "default":
        from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding
        values, scale = LlamaRotaryEmbedding.compute_default_rope_parameters(config)
    else:
        values, scale = ROPE_INIT_FUNCTIONS[parameters["rope_type"]](config)
    return {"config": {"model_type": "llama", "vocab_size": 2, "hidden_size": dim,
                       "intermediate_size": 2, "num_hidden_layers": 1, "num_attention_heads": 1,
                       "head_dim": dim, "max_position_embeddings": positions,
                       "rope_parameters": parameters},
            "scale": float(scale), "frequencies": [float(f"{v:.9g}") for v in values.tolist()]}


def main():
    default = pathlib.Path(__file__).resolve().parent.parent / "tests" / "golden"
    out = pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else default
    torch.use_deterministic_algorithms(True)
    torch.set_num_threads(1)
    for name, variant in VARIANTS.items():
        if len(sys.argv) < 3 or name in sys.argv[2:]:
            make(out / name, variant)
    for name in STACKED:
        make_stacked(out, name)
    lines = ",\n".join(json.dumps(frequencies(rope)) for rope in ROPES)
    (out / "rope.json").write_text(f"[\n{lines}\n]\n")


if __name__ == "__main__":
    main()
