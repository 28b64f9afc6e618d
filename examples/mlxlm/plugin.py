"""The contract, over mlx-lm: Describe, Inspect, Plan, Open, Generate, Stats, Shutdown."""

import json
import math
import os
import platform
import queue
import sys
import threading
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "build"))

import grpc  # noqa: E402
from google.protobuf import json_format  # noqa: E402

import handshake  # noqa: E402
import model as family  # noqa: E402
from clade.v1 import generate_pb2, model_pb2, plugin_pb2  # noqa: E402
from contract import Error, abort, declared, known  # noqa: E402

OPTIONS = {
    "device": "cpu",
    "context": "most tokens of a sequence",
    "max_tokens": "most tokens of the answer",
    "stop_token_ids": "end it; not emitted",
    "sampling.temperature": "0 is greedy",
    "sampling.top_p": "in (0, 1]",
    "sampling.top_k": "0 keeps all",
    "sampling.seed": "of mlx's random numbers",
    "sampling.logit_bias": "added by id",
    "sampling.ignore_eos": "only stop_token_ids end the answer",
}
RPCS = ["Plan", "Open", "Generate", "Stats"]


def manifest():
    import yaml

    with open(os.path.join(HERE, "plugin.yaml")) as f:
        return yaml.safe_load(f)


MANIFEST = manifest()


def describe():
    machine = {"x86_64": "amd64", "aarch64": "arm64"}.get(platform.machine(), platform.machine())
    entry = plugin_pb2.GraphEntry(id=family.ENTRY)
    return plugin_pb2.DescribeResponse(
        name=MANIFEST["name"],
        version=MANIFEST["version"],
        contract_versions=handshake.MAJORS,
        manifest_json=json.dumps(MANIFEST, separators=(",", ":")),
        graph_tables=[plugin_pb2.GraphTable(graph=family.GRAPH, entries=[entry])],
        options=[plugin_pb2.Option(path=p, doc=d) for p, d in sorted(OPTIONS.items())],
        rpcs=RPCS,
        platform="%s/%s" % (sys.platform, machine),
    )


class Worker:
    """The one thread that touches MLX; jobs run one after another."""

    def __init__(self):
        self.jobs = queue.Queue()
        threading.Thread(target=self.run, daemon=True).start()

    def run(self):
        while True:
            self.jobs.get()()

    def events(self, job):
        """Runs job(emit) and yields what it emits, with None once a second while nothing comes; raises what it raises."""
        out, end = queue.Queue(), object()

        def call():
            try:
                job(out.put)
                out.put((end, None))
            except BaseException as e:  # noqa: B036: it crosses to the caller's thread
                out.put((end, e))

        self.jobs.put(call)
        while True:
            try:
                e = out.get(timeout=1)
            except queue.Empty:
                yield None
                continue
            if isinstance(e, tuple) and e[0] is end:
                if e[1] is not None:
                    raise e[1]
                return
            yield e


class Plugin:
    def __init__(self):
        self.lock, self.worker = threading.Lock(), Worker()
        self.model, self.opening, self.draining = None, False, False
        self.active, self.stops = 0, set()  # running requests and the events that end them
        self.started, self.planned = time.time(), None

    # Answers.

    def Describe(self, request, _):
        known(request)
        return describe()

    def assert_spec(self, spec):
        record, p = MANIFEST["families"][0], spec.profile
        if not spec.artifacts or not spec.HasField("profile") or not spec.HasField("composition"):
            raise Error("INVALID_ARGUMENT", "model", "artifacts, profile and composition are needed")
        if spec.HasField("implementation"):
            raise Error("UNSUPPORTED_MODEL_LOAD", p.id, "there is no implementation " + spec.implementation)
        if len(spec.artifacts) != 1:
            raise Error("UNSUPPORTED_OPTION", "artifacts", "a model is opened alone")
        own = p.from_caller and not p.id  # a person's own plugin and graph need no profile
        want = {"graph": record["graph"], "profile": "" if own else record["profile"], "loader": "safetensors", "loop": record["loop"], "format": "safetensors"}
        got = {"graph": spec.graph, "profile": p.id, "loader": p.loader, "loop": p.loop, "format": spec.artifacts[0].format}
        for name, value in want.items():
            if got[name] != value:
                raise Error("PLUGIN_MISMATCH", name, "is %s here, the host says %s" % (value, got[name]))
        if spec.graph_required and spec.graph_entry != family.ENTRY:
            raise Error("INVALID_ARGUMENT", spec.graph_entry, "the table has " + family.ENTRY)

    def plan_of(self, spec):
        self.assert_spec(spec)
        declared(spec.composition, OPTIONS)
        p = family.plan(spec)
        return p, model_pb2.Plan(
            lines=[model_pb2.MemoryLine(name=n, bytes=b, detail=d) for n, b, d in p["lines"]],
            total_bytes=sum(b for _, b, _ in p["lines"]),
            graph_entry=family.ENTRY,
            graph_reason="" if spec.graph_entry in ("", family.ENTRY) else "the table has no other entry",
            context=p["context"],
            bytes_per_token=p["per_token"],
            device=family.DEVICE,
            dtype=p["dtype"],
        )

    def Plan(self, request, _):
        known(request)
        return plugin_pb2.PlanResponse(plan=self.plan_of(request.model)[1])

    def Open(self, request, context):
        known(request)
        with self.lock:
            if self.draining:
                raise Error("UNAVAILABLE", MANIFEST["name"], "is shutting down")
            if self.opening or self.model:
                raise Error("BUSY", MANIFEST["name"], "this process has its model already")
            self.opening = True
        opened = None
        try:
            planned, plan = self.plan_of(request.model)
            if not request.HasField("plan"):
                raise Error("INVALID_ARGUMENT", "plan", "an admitted plan is needed")
            if plan != request.plan:
                raise Error("PLUGIN_MISMATCH", "plan", "%d bytes now, %d were admitted" % (plan.total_bytes, request.plan.total_bytes))
            box = []
            for _ in self.worker.events(lambda emit: box.append(family.Model(request.model.artifacts[0].path, planned))):
                yield plugin_pb2.OpenResponse(progress=generate_pb2.Progress())
            if not context.is_active():
                raise Error("CANCELLED", "", "the host ended the stream")
            opened = box[0]
            yield plugin_pb2.OpenResponse(opened=self.facts(opened, request.model, plan))
        finally:
            with self.lock:
                self.opening, self.model = False, opened

    def facts(self, m, spec, plan):
        self.planned = plan
        return plugin_pb2.ModelFacts(
            family=MANIFEST["name"],
            graph=spec.graph,
            graph_entry=family.ENTRY,
            loader=spec.profile.loader,
            loop=spec.profile.loop,
            device=family.DEVICE,
            dtype=plan.dtype,
            vocab_size=m.vocab,
            context_length=m.context,
            eos_token_ids=m.eos,
            plan=plan,
            memory=model_pb2.MemoryStats(active_bytes=m.active()),
            capabilities=spec.profile.required_capabilities,
        )

    def Stats(self, request, _):
        known(request)
        out = plugin_pb2.StatsResponse(uptime_ns=int((time.time() - self.started) * 1e9))
        with self.lock:
            m, out.active_requests = self.model, self.active
        if m:
            out.memory.active_bytes = m.active()
            out.evaluations, out.prompt_tokens, out.generated_tokens = m.evaluations, m.prompt_tokens, m.generated
        return out

    def Generate(self, requests, context):
        with self.lock:
            if self.draining:
                raise Error("UNAVAILABLE", MANIFEST["name"], "is shutting down")
            if self.model is None:
                raise Error("UNAVAILABLE", MANIFEST["name"], "no model is open in this process")
            m, stop = self.model, threading.Event()
            self.active += 1
            self.stops.add(stop)
        try:
            context.add_callback(stop.set)
            yield from self.answer(m, requests, stop)
        finally:
            with self.lock:
                self.active -= 1
                self.stops.discard(stop)

    def answer(self, m, requests, stop):
        start, ids = self.read(requests, m)
        want = self.settings(start, ids, m)
        state = {"stop_at": None, "error": None}

        def control():
            try:
                for r in requests:
                    known(r)
                    action = r.control.WhichOneof("action") if r.WhichOneof("message") == "control" else None
                    if action is None:
                        raise Error("INVALID_ARGUMENT", "message", "not allowed behind prompt_end")
                    if action == "stop_at":
                        state["stop_at"] = r.control.stop_at
                    elif r.control.cancel:
                        stop.set()
            except Error as e:
                state["error"] = e
                stop.set()
            except grpc.RpcError:
                stop.set()

        threading.Thread(target=control, daemon=True).start()
        result, total = [], len(ids)

        def job(emit):
            if stop.is_set():
                raise Error("CANCELLED", "", "cancelled by the host")
            tell = lambda kind, value: emit((kind, value))  # noqa: E731
            result.append(m.generate(ids, want, tell, stop.is_set, lambda: state["stop_at"]))

        try:
            for e in self.worker.events(job):
                if e is None:
                    progress = generate_pb2.Progress(evaluations=m.evaluations, tokens=m.prompt_tokens + m.generated)
                    yield generate_pb2.GenerateResponse(progress=progress)
                elif e[0] == "prefill":
                    yield generate_pb2.GenerateResponse(prefill=generate_pb2.PrefillProgress(done=e[1], total=total))
                else:
                    yield generate_pb2.GenerateResponse(step=generate_pb2.TokenStep(ids=[e[1]]))
        except Error:
            raise state["error"] or sys.exc_info()[1]
        reason, made = result[0]
        provenance = generate_pb2.Provenance(
            plugin=MANIFEST["name"],
            plugin_version=MANIFEST["version"],
            device=family.DEVICE,
            dtype=self.planned.dtype,
            graph_entry=family.ENTRY,
            runtime="mlx-lm",
        )
        usage = generate_pb2.Usage(prompt_tokens=total, generated_tokens=made)
        reason = getattr(generate_pb2, "FINISH_REASON_" + reason)
        yield generate_pb2.GenerateResponse(finish=generate_pb2.Finish(reason=reason, usage=usage, provenance=provenance))

    def read(self, requests, m):
        """start, ids in chunks, prompt_end."""
        start, ids = None, []
        for r in requests:
            known(r)
            kind = r.WhichOneof("message")
            if kind == "start" and start is None:
                start = r.start
                declared(start, OPTIONS)
            elif kind == "ids" and start is not None:
                ids.extend(r.ids.ids)
            elif kind == "prompt_end" and start is not None:
                return start, self.checked(ids, m)
            elif kind == "control" and r.control.cancel:
                raise Error("CANCELLED", "", "cancelled by the host")
            elif kind == "media":
                raise Error("UNSUPPORTED_OPTION", "media", "this plugin takes none")
            else:
                raise Error("INVALID_ARGUMENT", kind or "empty message", "not allowed at this place of the stream")
            if len(ids) > m.context:
                raise Error("CONTEXT_TOO_LONG", "prompt", "is longer than the context of %d" % m.context)
        raise Error("INVALID_ARGUMENT", "prompt_end", "the stream ended before it")

    def checked(self, ids, m):
        if not ids:
            raise Error("INVALID_ARGUMENT", "prompt", "has no tokens")
        for i in ids:
            if not 0 <= i < m.vocab:
                raise Error("INVALID_ARGUMENT", "prompt", "id %d is not in a vocabulary of %d" % (i, m.vocab))
        if len(ids) >= m.context:
            raise Error("CONTEXT_TOO_LONG", "prompt", "%d tokens leave no room in a context of %d" % (len(ids), m.context))
        return ids

    def settings(self, start, ids, m):
        s = start.sampling
        limit = m.context - len(ids)
        if start.HasField("max_tokens"):
            limit = min(limit, start.max_tokens)
        want = {
            "limit": limit,
            "stops": set(start.stop_token_ids) | (set() if s.ignore_eos else set(m.eos)),
            "temperature": s.temperature,
            "top_p": s.top_p if s.HasField("top_p") else 1.0,
            "top_k": s.top_k,
            "seed": s.seed if s.HasField("seed") else None,
            "bias": dict(s.logit_bias),
        }
        for name, good in {
            "sampling.temperature": want["temperature"] >= 0 and math.isfinite(want["temperature"]),
            "sampling.top_p": 0 < want["top_p"] <= 1,
            "sampling.logit_bias": all(0 <= i < m.vocab and math.isfinite(v) for i, v in want["bias"].items()),
            "stop_token_ids": all(0 <= i < m.vocab for i in start.stop_token_ids),
        }.items():
            if not good:
                raise Error("INVALID_ARGUMENT", name, "is out of range")
        return want

    def Shutdown(self, request, _):
        known(request)
        self.drain(request.drain_ns / 1e9)
        threading.Timer(0.05, os._exit, (0,)).start()
        return plugin_pb2.ShutdownResponse()

    def drain(self, patience):
        with self.lock:
            self.draining = True
        for wait in (patience, 2.0):
            until = time.time() + wait
            while self.active and time.time() < until:
                time.sleep(0.01)
            with self.lock:
                for stop in self.stops:
                    stop.set()


def handler(plugin):
    """The contract's methods as a generic handler: Python's stubs are not needed."""
    unary = {"Describe": plugin_pb2.DescribeRequest, "Plan": plugin_pb2.PlanRequest, "Stats": plugin_pb2.StatsRequest, "Shutdown": plugin_pb2.ShutdownRequest}

    def guarded(method):
        def call(request, context):
            try:
                return method(request, context)
            except Error as e:
                abort(context, e)

        return call

    def guarded_stream(method):
        def call(request, context):
            try:
                yield from method(request, context)
            except Error as e:
                abort(context, e)

        return call

    encode = lambda m: m.SerializeToString()  # noqa: E731
    methods = {
        name: grpc.unary_unary_rpc_method_handler(guarded(getattr(plugin, name)), request.FromString, encode) for name, request in unary.items()
    }
    methods["Open"] = grpc.unary_stream_rpc_method_handler(guarded_stream(plugin.Open), plugin_pb2.OpenRequest.FromString, encode)
    methods["Generate"] = grpc.stream_stream_rpc_method_handler(guarded_stream(plugin.Generate), generate_pb2.GenerateRequest.FromString, encode)
    return grpc.method_handlers_generic_handler("clade.v1.PluginService", methods)


def main(args):
    if args == ["version"]:
        print(MANIFEST["name"], MANIFEST["version"])
        return 0
    if args in (["describe"], ["describe", "--json"]):
        print(json_format.MessageToJson(describe(), preserving_proto_field_name=True))
        return 0
    if args or not handshake.started_by_host():
        return handshake.by_hand(MANIFEST["name"], MANIFEST["version"])
    plugin = Plugin()
    handshake.serve(handler(plugin), exit_=lambda: threading.Timer(0.05, os._exit, (0,)).start())


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
