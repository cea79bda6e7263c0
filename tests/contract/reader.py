"""A second reader of bundles, written from ``docs/contract.md`` with numpy and onnxruntime, which tests that page."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime as ort

Array = np.ndarray[Any, Any]
Ids = tuple[int, ...]
Beam = list[tuple[float, Ids, int]]  # log-probability, or -inf; ids; which beam of the step before it continues
Found = tuple[float, Ids, bool]  # score; ids without the end token; whether the end token ended it


class Reader:
    def __init__(self, folder: Path) -> None:
        self.folder, self.manifest = folder, json.loads((folder / "manifest.json").read_bytes())
        hashes = {name: entry["sha256"] for name, entry in self.manifest["files"].items()}
        hashes["manifest.json"] = (folder / "manifest.json.sha256").read_text().split()[0]
        damaged = [name for name in hashes if hashlib.sha256((folder / name).read_bytes()).hexdigest() != hashes[name]]
        if damaged or self.manifest["schema_revision"] != 4:
            raise ValueError(f"damaged: {damaged}; revision {self.manifest['schema_revision']}")

        self.is_restricted = "shortlist.bin" in hashes

    def open(self, name: str) -> ort.InferenceSession:
        options = ort.SessionOptions()
        options.add_session_config_entry("session.x64quantprecision", "1")
        return ort.InferenceSession(self.folder / name, options, providers=["CPUExecutionProvider"])

    def usable(self, sources: list[Ids]) -> Array:
        """Return which target tokens each sentence may use, ``(N, V)``."""
        data = (self.folder / "shortlist.bin").read_bytes()
        count, size, always, entries = np.frombuffer(data, "<u4", 4).tolist()
        ends = [0, *np.frombuffer(data, "<u4", count, 16).tolist()]
        tokens = np.frombuffer(data, "<u2" if size <= 65536 else "<u4", size + entries, 16 + 4 * count)
        usable = np.zeros((len(sources), size), bool)
        for row, source in zip(usable, sources, strict=True):
            lists = [tokens[size + ends[token] : size + ends[token + 1]] for token in source]
            row[np.concatenate([tokens[:always], *lists])] = True
        return usable

    def translate(self, sources: list[Ids], beams: int) -> list[list[Found]]:
        """Search for the translations of a batch, best first; with one beam, by greedy search."""
        special, rules, state = self.manifest["special"], self.manifest["generation"], State(self, sources)
        longest = self.manifest["max_target_length"] - len(special["prefix"])
        first = beams if "int4" in self.manifest["precision"].values() else 1
        live: list[Beam] = [[(0.0 if beam == 0 else -np.inf, (), 0) for beam in range(first)] for _ in sources]
        found: list[list[Found]] = [[] for _ in sources]
        for token in [special["bos"], *special["prefix"]]:
            logits = state.step([token] * len(sources) * first, live)
        while True:
            logits[:, special["suppress"]] = -np.inf
            peak = logits.max(axis=1, keepdims=True)
            values = logits - (peak + np.log(np.exp(logits - peak).sum(axis=1, keepdims=True)))
            values[:, special["forbid"]] = -np.inf
            for n, of_sentence in enumerate(values.reshape(len(sources), -1, values.shape[1])):
                limit = max(1, int(rules["max_len_a"] * len(sources[n]))) if rules["max_len_a"] else longest
                if max(live[n])[0] > -np.inf:
                    live[n] = extended(self.manifest, live[n], beams, found[n], of_sentence, min(limit, longest))
            if all(max(beam)[0] == -np.inf for beam in live):
                return [sorted(hypotheses, key=lambda hypothesis: -hypothesis[0]) for hypotheses in found]
            logits = state.step([ids[-1] for beam in live for _, ids, _ in beam], live)


def extended(manifest: dict[str, Any], beam: Beam, beams: int, found: list[Found], values: Array, limit: int) -> Beam:
    """Extend the K hypotheses of a sentence by one token, given log-probabilities ``(K, V)``, and collect what ends."""
    eos, given, rules = manifest["special"]["eos"], len(manifest["special"]["prefix"]), manifest["generation"]
    stops_early, shrinks = beams == 1 or rules["early_stopping"], beams > 1 and rules["beam_shrinks"]
    room, follows_prefix = beams - len(found) if shrinks else 2 * beams, given > 0 and not beam[0][1]
    total = (np.array([value for value, *_ in beam])[:, None] + values).ravel()  # float64
    ended, continued = list[Found](), Beam()
    for rank, index in enumerate(np.argsort(-total, kind="stable")[: 2 * beams].tolist()):
        parent, token = divmod(index, values.shape[1])
        value, ids = float(total[index]) if rank < room else -np.inf, beam[parent][1]
        if token != eos or (follows_prefix and rank > 0):
            continued.append((value if token != eos else -np.inf, (*ids, token), parent))
        elif rank < beams:
            ended.append((value, ids, True))
    best, length = continued[:beams], len(continued[0][1])
    ended += [(value, ids, False) for value, ids, _ in best if length == limit]
    for value, ids, finished in ended:
        if value > -np.inf and not (stops_early and len(found) >= beams):
            counted = given + len(ids) + (finished and rules["length_includes_end"])
            found.append((value / max(1, counted) ** rules["length_penalty"], ids, finished))
    worst = sorted(score for score, *_ in found)[-beams] if len(found) >= beams else -np.inf
    is_better = not stops_early and max(best)[0] / max(1, given + length) ** rules["length_penalty"] > worst
    is_done = length == limit or (len(found) >= beams and not is_better)
    return [(-np.inf if is_done else value, ids, parent) for value, ids, parent in best]


class State:
    def __init__(self, reader: Reader, sources: list[Ids]) -> None:
        """Encode N sentences, and make the inputs of their first step with one row each."""
        manifest, self.position = reader.manifest, 0
        self.graph = reader.open("decoder.onnx")
        length, room = np.array([len(source) for source in sources]), manifest["max_target_length"]
        padded = np.array([[*ids] + [manifest["special"]["pad"]] * (length.max() - len(ids)) for ids in sources])
        names = [tensor["name"] for tensor in manifest["state"] if tensor["kind"] != "cache"]
        outputs = reader.open("encoder.onnx").run(names, {"source": padded, "source_length": length})
        encoded = dict(zip(names, outputs, strict=True))
        self.owner = np.zeros((len(sources), 1, room), np.int32)  # (N, K, T)
        self.values: dict[str, Array] = {}
        self.kinds: dict[str, str] = {}  # of inputs with a row for each beam: their kind, or T if written in place
        sizes = {"N": len(sources), "R": len(sources), "S": int(length.max()), "P": 0, "T": room}
        for tensor in manifest["state"]:
            axes, name = tensor["axes"], ("" if tensor["kind"] == "constant" else "past.") + tensor["name"]
            empty = np.zeros([sizes.get(axis, axis) for axis in axes], tensor["dtype"])  # of a cache
            self.values[name] = encoded.get(tensor["name"], empty)
            self.kinds |= {name: "T" if "T" in axes else tensor["kind"]} if axes[0] == "R" else {}
        self.usable = reader.usable(sources) if reader.is_restricted else None  # (N, V)

    def step(self, token: list[int], live: list[Beam]) -> Array:
        """Let every row continue what its beam says, advance it by a token, ``(R,)``, and return logits, ``(R, V)``."""
        parent = np.array([[parent for *_, parent in beam] for beam in live])  # (N, K)
        before, beams = self.owner.shape[1], parent.shape[1]
        rows = (parent + np.arange(len(parent))[:, None] * before).ravel()
        moved = [name for name, kind in self.kinds.items() if kind in ("cache", "recurrent") or beams != before]
        self.values |= {name: self.values[name][rows] for name in moved}
        self.owner = np.take_along_axis(self.owner, parent[:, :, None], axis=1)
        self.owner[:, :, self.position - 1] = parent  # whose row the step before wrote to
        if beams != before:  # caches have moved
            self.owner[:] = np.arange(beams)[:, None]
        given = {**self.values, "token": np.array(token), "position": np.array(self.position)}
        if "T" in self.kinds.values():
            given |= {"cache_indirection": self.owner, "beam_width": np.array([beams], np.int32)}
        binding = self.graph.io_binding()
        binding.bind_output("logits")
        changed = [name for name, kind in self.kinds.items() if kind != "constant"]
        for name, array in given.items():
            value = ort.OrtValue.ortvalue_from_numpy(array)  # the array's own memory
            binding.bind_ortvalue_input(name, value)
            if name in changed:
                output, in_place = name.replace("past.", "present.", 1), self.kinds[name] == "T"
                binding.bind_ortvalue_output(output, value) if in_place else binding.bind_output(output)
        self.graph.run_with_iobinding(binding)
        outputs = dict(zip(["logits", *changed], binding.get_outputs(), strict=True))
        self.values |= {name: outputs[name].numpy().copy() for name in changed if self.kinds[name] != "T"}
        logits = outputs["logits"].numpy()
        self.position += 1
        return logits if self.usable is None else np.where(np.repeat(self.usable, beams, axis=0), logits, -np.inf)
