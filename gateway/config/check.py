"""What a schema cannot see: names that do not exist, addresses that overlap, units that do not convert, polls that are too slow."""

from collections.abc import Iterator, Sequence
from difflib import get_close_matches
from pathlib import Path

from connectors.modbus.settings import ModbusSourceSettings, Table, WireType, parse_address
from connectors.modbus.target import block_words
from gateway.config.document import Document, Path_, Problem
from gateway.config.plan import groups_of
from gateway.config.schema import GuardedTargetSettings, Settings
from gateway.core.errors import ConfigError
from gateway.core.units import conversion, unit
from inference.bundle import Manifest, bundle_path, read_manifest
from inference.settings import ModelSettings
from preprocess.enable import Enable


class _Check:
    """One pass over a configuration.

    Args:
        settings: Valid by the schema.
        document: For places.
        folder: What paths are relative to.
        hidden: Names that exist in the file but were left out because something else is wrong with them.
    """

    def __init__(self, settings: Settings, document: Document, folder: Path, hidden: frozenset[str]) -> None:
        self.settings = settings
        self.document = document
        self.folder = folder
        self.hidden = hidden
        self.problems: list[Problem] = []
        # Places are looked up by name, because items may have been left out of the lists.
        self._named = {
            (path[:-2] if isinstance(path[-2], int) else path[:-1], self._at(path)): path[:-1]
            for path in document.values
            if path and path[-1] == "name" and len(path) > 1
        }
        self.tags: dict[str, str] = {}
        self.groups: dict[str, str] = {}
        self.manifests: dict[str, Manifest] = {}

    def _at(self, path: Path_) -> object:
        node = self.document.data
        for part in path:
            node = node[part]
        return node

    def say(self, path: Path_, text: str, remedy: str) -> None:
        """Note a mistake."""
        self.problems.append(Problem(self.document.place(path), text, remedy))

    def item(self, section: Path_, name: str) -> Path_:
        """Path of a named item of a list."""
        return self._named.get((section, name), section)

    def near(self, name: str, known: Sequence[str]) -> str:
        """The remedy for a name that does not exist."""
        close = get_close_matches(name, known, n=1, cutoff=0.5)
        if close:
            return f"did you mean '{close[0]}'?"
        return f"known: {', '.join(list(known)[:8])}" if known else "declare it first"

    def exists(self, name: str, known: Sequence[str]) -> bool:
        """Whether a name is known, or cannot be judged because its owner is wrong in another way."""
        return name in known or name in self.hidden

    def unique(self, section: Path_, names: Sequence[str], what: str) -> None:
        """No two of a list may have one name."""
        seen: set[str] = set()
        for name in names:
            if name in seen:
                self.say(self.item(section, name), f"{what} '{name}' is declared twice", "give one of them another name")
            seen.add(name)

    def run(self) -> list[Problem]:
        """All of it."""
        self._names()
        for source in self.settings.sources:
            self._source(source)
        self._derived()
        self._addresses()
        for model in self.settings.models:
            self._model(model)
        for target in self.settings.control.targets:
            self._target(target)
        self._target_blocks()
        self._headline()
        return self.problems

    def _names(self) -> None:
        settings = self.settings
        self.unique(("sources",), [s.name for s in settings.sources], "source")
        self.unique(("models",), [m.name for m in settings.models], "model")
        self.unique(("publish",), [p.name for p in settings.publish], "sink")
        self.unique(("control", "targets"), [t.name for t in settings.control.targets], "target")

    def _source(self, source: ModbusSourceSettings) -> None:
        at = self.item(("sources",), source.name)
        self.unique((*at, "groups"), [g.name for g in source.groups], "group")
        for group in source.groups:
            place = self.item((*at, "groups"), group.name)
            for tag in group.tags:
                path = self.item((*place, "tags"), tag.name)
                if tag.name in self.tags:
                    self.say(path, f"tag '{tag.name}' is declared twice", "give one of them another name")
                self.tags[tag.name] = tag.unit
                self.groups[tag.name] = f"{source.name}/{group.name}"
                try:
                    unit(tag.unit)
                except ConfigError as error:
                    self.say((*path, "unit"), error.text, error.remedy)
                if tag.low is not None and tag.high is not None and tag.low >= tag.high:
                    self.say((*path, "low"), f"low {tag.low:g} is not below high {tag.high:g}", "swap them")
                if tag.scale == 0:
                    self.say((*path, "scale"), "a scale of 0 makes every value the same", "use 1 for no scaling")

    def _derived(self) -> None:
        for derived in self.settings.derived:
            path = self.item(("derived",), derived.name)
            wanted = 2 if derived.kind in ("difference", "ratio") else 1
            if len(derived.sources) != wanted:
                self.say((*path, "sources"), f"{derived.kind} takes {wanted} tag(s), {len(derived.sources)} given", "correct the list")
            for i, name in enumerate(derived.sources):
                if not self.exists(name, list(self.tags)):
                    self.say((*path, "sources", i), f"unknown tag '{name}'", self.near(name, list(self.tags)))
            groups = {self.groups[name] for name in derived.sources if name in self.groups}
            if len(groups) > 1:
                self.say((*path, "sources"), f"the tags are of {len(groups)} groups: {', '.join(sorted(groups))}", "use tags of one group")
            if derived.name in self.tags:
                self.say(path, f"tag '{derived.name}' is declared twice", "give one of them another name")
            try:
                unit(derived.unit)
            except ConfigError as error:
                self.say((*path, "unit"), error.text, error.remedy)
            self.tags[derived.name] = derived.unit
            self.groups[derived.name] = min(groups, default="")

    def _spans(self) -> Iterator[tuple[tuple[str, int, int, Table], int, int, WireType, Path_, str]]:
        """Every tag's device and table, first and last address + 1, type, place and name."""
        for source in self.settings.sources:
            at = self.item(("sources",), source.name)
            for group in source.groups:
                place = self.item((*at, "groups"), group.name)
                for tag in group.tags:
                    table, first = parse_address(tag.address)
                    words = 1 if table in (Table.COIL, Table.DISCRETE) else tag.type.words
                    key = (source.host, source.port, source.unit, table)
                    yield key, first, first + words, tag.type, (*self.item((*place, "tags"), tag.name), "address"), tag.name

    def _addresses(self) -> None:
        by_device: dict[tuple[str, int, int, Table], list[tuple[int, int, WireType, Path_, str]]] = {}
        for key, first, last, kind, path, name in self._spans():
            if last > 65536:
                self.say(path, f"tag '{name}' reaches beyond address 65535", "check the address")
            by_device.setdefault(key, []).append((first, last, kind, path, name))
        for spans in by_device.values():
            spans.sort(key=lambda span: span[:2])
            furthest = spans[0]
            for span in spans[1:]:
                same = span[:3] == furthest[:3]
                if span[0] < furthest[1] and not same:
                    text = f"address of '{span[4]}' overlaps '{furthest[4]}' ({furthest[0]} to {furthest[1] - 1}, {furthest[2]})"
                    self.say(span[3], text, "correct the address or the type of one of them")
                furthest = max(furthest, span, key=lambda s: s[1])

    def _manifest(self, model: ModelSettings, path: Path_) -> Manifest | None:
        try:
            manifest = read_manifest(bundle_path(model.bundle, self.folder))
            Enable(manifest.chain.enable)
        except ConfigError as error:
            self.say((*path, "bundle"), error.text, error.remedy)
            return None
        self.manifests[model.name] = manifest
        return manifest

    def _model(self, model: ModelSettings) -> None:
        path = self.item(("models",), model.name)
        self.unique((*path, "assets"), [a.name for a in model.assets], "asset")
        manifest = self._manifest(model, path)
        if manifest is None:
            return
        chain = manifest.chain
        units = {spec.name: spec.unit for spec in chain.inputs}
        for asset in model.assets:
            at = self.item((*path, "assets"), asset.name)
            for extra in set(asset.inputs) - set(chain.signals()):
                self.say((*at, "inputs", extra), f"the model has no input '{extra}'", self.near(extra, chain.signals()))
            for signal in chain.signals():
                try:
                    tag = model.tag_of(asset, signal)
                except (KeyError, IndexError, ValueError, AttributeError):
                    self.say((*path, "inputs"), f"pattern '{model.inputs}' is not understood", "use {asset} and {input} only")
                    return
                self._input(signal, tag, at, units.get(signal))
        self._groups(model, manifest, path)

    def _input(self, signal: str, tag: str, path: Path_, wanted: str | None) -> None:
        if not self.exists(tag, list(self.tags)):
            self.say(path, f"input '{signal}' is not mapped: there is no tag '{tag}'", self.near(tag, list(self.tags)))
            return
        if wanted is None or tag not in self.tags:
            return
        try:
            conversion(self.tags[tag], wanted)
        except ConfigError as error:
            if not error.text.startswith("unknown unit"):
                self.say(path, f"input '{signal}' from tag '{tag}': {error.text}", error.remedy)

    def _groups(self, model: ModelSettings, manifest: Manifest, path: Path_) -> None:
        groups = groups_of(model, manifest.chain, self.settings)
        domains = {group.clock.name if group.clock else "gateway" for _, group in groups}
        if len(domains) > 1:
            text = f"the inputs of model '{model.name}' live in {len(domains)} time domains: {', '.join(sorted(domains))}"
            self.say(path, text, "feed a model from groups of one clock")
        limits = {spec.name: spec.hold_limit_s for spec in manifest.chain.inputs}
        tightest = {
            model.tag_of(asset, name): (name, limits[name]) for asset in model.assets for name in manifest.chain.signals() if name in limits
        }
        for name, group in groups:
            slow = [
                (tag.name, *tightest[tag.name]) for tag in group.tags if tag.name in tightest and group.period_s > tightest[tag.name][1]
            ]
            if slow:
                tag, signal, limit_s = slow[0]
                source, _, short = name.partition("/")
                where = self.item((*self.item(("sources",), source), "groups"), short)
                text = f"polled every {group.period_s:g} s, but model '{model.name}' holds input '{signal}' ({tag}) for {limit_s:g} s only"
                self.say((*where, "period_s"), text, f"set period_s to {limit_s:g} or less")

    def _target(self, target: GuardedTargetSettings) -> None:
        path = self.item(("control", "targets"), target.name)
        for key, name, known in (
            ("source", target.source, [s.name for s in self.settings.sources]),
            ("model", target.model, [m.name for m in self.settings.models]),
        ):
            if not self.exists(name, known):
                self.say((*path, key), f"unknown {key} '{name}'", self.near(name, known))
        assets = [a.name for m in self.settings.models if m.name == target.model for a in m.assets]
        if assets and not self.exists(target.asset, assets):
            self.say((*path, "asset"), f"model '{target.model}' has no asset '{target.asset}'", self.near(target.asset, assets))
        manifest = self.manifests.get(target.model)
        if manifest is not None:
            self._limits(target, manifest, path)

    def _limits(self, target: GuardedTargetSettings, manifest: Manifest, path: Path_) -> None:
        outputs = {spec.name: spec for spec in manifest.outputs}
        missing = [name for name in outputs if name not in target.limits]
        if missing:
            shown = ", ".join(missing[:4]) + (f" and {len(missing) - 4} more" if len(missing) > 4 else "")
            text = f"target '{target.name}' has no limits for {shown}"
            self.say((*path, "limits"), text, "nothing is written without limits: give low and high for every output")
        held = {} if target.hold == "last" else target.hold
        for key, names in (("limits", target.limits), ("hold", held)):
            for name in names:
                if name not in outputs:
                    self.say((*path, key, name), f"model '{target.model}' has no output '{name}'", self.near(name, list(outputs)))
        for name, limit in target.limits.items():
            spec = outputs.get(name)
            if limit.low >= limit.high:
                self.say((*path, "limits", name), f"low {limit.low:g} is not below high {limit.high:g}", "swap them")
            elif spec is not None and (limit.high < spec.low or limit.low > spec.high):
                text = f"limits of '{name}' exclude all that the model can say ({spec.low:g} to {spec.high:g} {spec.unit})"
                self.say((*path, "limits", name), text, "check the unit")
            if name in held and not limit.low <= held[name] <= limit.high:
                self.say((*path, "hold", name), f"the hold value {held[name]:g} is outside its own limits", "choose a value inside")

    def _target_blocks(self) -> None:
        sources = {source.name: source for source in self.settings.sources}
        blocks: list[tuple[tuple[str, int, int], int, int, str]] = []
        for target in self.settings.control.targets:
            source, manifest = sources.get(target.source), self.manifests.get(target.model)
            if source is None or manifest is None:
                continue
            first = parse_address(target.address)[1]
            last = first + block_words(len(manifest.outputs))
            where = (*self.item(("control", "targets"), target.name), "address")
            if last > 65536:
                self.say(where, f"the block reaches beyond address 65535 ({last - first} registers)", "choose a lower address")
            if last - first > 123:
                self.say(
                    where, f"the block of {last - first} registers does not fit into one write of 123", "write a model with fewer outputs"
                )
            key = (source.host, source.port, source.unit)
            for other_key, other_first, other_last, name in blocks:
                if key == other_key and first < other_last and other_first < last:
                    self.say(where, f"block {first} to {last - 1} overlaps '{name}'", f"use holding {other_last} or higher")
            for tag_key, tag_first, tag_last, _, _, name in self._spans():
                if tag_key == (*key, Table.HOLDING) and first < tag_last and tag_first < last:
                    self.say(
                        where, f"block {first} to {last - 1} lies over tag '{name}' ({tag_first})", "never write over what is measured"
                    )
                    break
            blocks.append((key, first, last, target.name))

    def _headline(self) -> None:
        for i, name in enumerate(self.settings.gateway.headline):
            if not self.exists(name, list(self.tags)):
                self.say(("gateway", "headline", i), f"unknown tag '{name}'", self.near(name, list(self.tags)))


def check(settings: Settings, document: Document, folder: Path, hidden: frozenset[str] = frozenset()) -> list[Problem]:
    """Every mistake that the schema cannot see. Opens no socket; reads the manifests of bundles."""
    return _Check(settings, document, folder, hidden).run()
