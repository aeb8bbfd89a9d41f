#!/usr/bin/env python3
"""Compare exported Heddle kernels with PyTorch (cuBLAS, cuDNN) in one process, on one GPU.

    python3 versus.py [--inductor [--inductor-mode default]] [--json FILE] [--seconds S]
                      [--definitions FILE] EXPORT_DIR [EXPORT_DIR ...]
    python3 versus.py --self-test [--json FILE] EXPORT_DIR [EXPORT_DIR ...]

Every EXPORT_DIR is a folder of `heddle export` (a manifest.json and its binaries). For each,
the kernels are checked (norm and worst element, every output) against a float64 reference on fresh
random inputs with poisoned outputs (where they fail, eager PyTorch's own error stands beside: a
definition that rounds on its way may be that far off by itself), then timed against every peer,
interleaved, under two policies: warm (one set of buffers, back to back) and cold (buffer sets
rotating over more than twice the L2 cache). Launches are captured in a CUDA graph. Prints a line per
case: microseconds of ours and of the best peer, and their ratio (above 1: we win). Exit code 1 if
any kernel's output is wrong. Needs torch. TF32 is off but for cases of tf32, whose float32 inputs
products round on both sides.

Both sides touch the same bytes: a peer's output of the same buffer set is freed before its next call,
so that the allocator hands out the same memory again, and a capture in which more outputs are alive
than there are buffer sets is an error. torch.compile compiles each case for its own static shape, and
cuDNN tries all of its algorithms. The JSON has every peer's time, or why it has none, and of each
policy the SM clock and the watts while both sides took their turns (sensors.py).

--definitions names a file with PyTorch's definitions of more operators: suites/operators.py is one.

--self-test compares our kernels with themselves, called as a peer is called, with fresh outputs:
every ratio must be 1.00 +- 0.02, else the exit code is 1.
"""
import argparse, ctypes, functools, json, math, os, runpy, statistics as st, sys, time
from collections import deque
import torch, torch.nn.functional as F
from sensors import Sensors

torch.backends.cuda.matmul.allow_tf32 = False
torch.backends.cudnn.allow_tf32 = False
torch.backends.cudnn.benchmark = True
torch.backends.cudnn.benchmark_limit = 0  # all of cuDNN's algorithms, not the first ten
DEV = 'cuda'
DT = {'float32': torch.float32, 'float16': torch.float16, 'bfloat16': torch.bfloat16,
      'int32': torch.int32}
# ||got - ref|| / ||ref||. Of tf32 two factors are rounded, 3e-4, or cut off, 7e-4, in each product.
TOL = {'float32': 2e-5, 'float16': 6e-4, 'bfloat16': 4e-3, 'tf32': 1e-3}
SELF = 0.02  # how far the ratio of a kernel to itself may be from 1
# max |got - ref| / rms(ref), but for what rounding an element alone may be off, HALF_ULP of it: of a
# softmax the largest may be a hundred times rms(ref).
HALF_ULP = {'float16': 2.0 ** -11, 'bfloat16': 2.0 ** -8}
TOL_MAX = {'float32': 3e-4, 'float16': 3e-2, 'bfloat16': 2e-1, 'tf32': 8e-3}


def eager(op, s):
    """name -> function of the input tensors, in the operator's own order; plain PyTorch."""
    f = {
        'vector_add': lambda a, b: a + b,
        'window_sum': lambda a: a.unfold(0, s.get('w', 3), 1).sum(-1),
        'matmul': lambda a, b: a @ b,
        'batch_matmul': lambda a, b: torch.bmm(a, b),
        'gemm_relu_add': lambda a, b, c: torch.relu(a @ b) + c,
        'transpose': lambda a: a.t().contiguous(),
        'conv2d': lambda x, w: F.conv2d(x, w, stride=s.get('stride', 1), padding=s.get('pad', 0)),
        # Its weights lie as kh, kw, ci, co: cuDNN's own copy of them is part of its time.
        'conv2d_nhwc': lambda x, w: F.conv2d(
            x.permute(0, 3, 1, 2), w.permute(3, 2, 0, 1), stride=s.get('stride', 1),
            padding=s.get('pad', 0)).permute(0, 2, 3, 1).contiguous(),
        'depthwise_conv2d': lambda x, w: F.conv2d(
            x, w if w.dim() == 4 else w.unsqueeze(1), stride=s.get('stride', 1),
            padding=s.get('pad', 0), groups=s['c']),
        'matmul_nt': lambda a, b: a @ b.t(),
        'matmul_tn': lambda a, b: a.t() @ b,
        'conv2d_bias_relu': lambda x, w, b: torch.relu(
            F.conv2d(x, w, b, stride=s.get('stride', 1), padding=s.get('pad', 0))),
        'softmax': lambda x: torch.softmax(x, -1),
        'layer_norm': lambda x, g, b: F.layer_norm(x, x.shape[-1:], g, b),
    }
    return f[op]


def flop(op, s, out):
    n = out.numel()
    if op in ('matmul', 'matmul_nt', 'matmul_tn', 'batch_matmul', 'gemm_relu_add'):
        return 2 * n * s['k']
    if op in ('conv2d', 'conv2d_nhwc', 'conv2d_bias_relu'): return 2 * n * s['ci'] * s['kh'] * s['kw']
    if op == 'depthwise_conv2d': return 2 * n * s['kh'] * s['kw']
    return None


class Ours:
    def __init__(self, d):
        self.m = json.load(open(os.path.join(d, 'manifest.json')))
        self.bufs = self.m['buffers']
        # Loaded and launched by the artefact's own launcher, in PyTorch's context, the primary one.
        launcher = runpy.run_path(os.path.join(d, 'run.py'))
        self.kernels = launcher['Cuda'](self.m, torch.cuda.current_device())
        self.workspaces = {b['name']: self.tensor(b) for b in self.bufs if b['role'] == 'workspace'}

    def tensor(self, b):
        t = torch.empty(b['shape'], device=DEV, dtype=DT[b['dtype']])
        if 'index_extent' in b: t.random_(0, b['index_extent'])
        elif b['role'] == 'input': t.normal_()
        elif t.is_floating_point(): t.fill_(float('nan'))
        else: t.random_()  # a workspace of integers
        return t

    def make(self):
        """A buffer set. Workspaces are the same in all sets, as the temporaries of a peer are."""
        return {b['name']: self.tensor(b) for b in self.bufs
                if b['role'] != 'workspace'} | self.workspaces
    def inputs(self, t): return [t[b['name']] for b in self.bufs if b['role'] == 'input']
    def outputs(self, t): return [t[b['name']] for b in self.bufs if b['role'] == 'output']

    def launch(self, t):
        self.kernels.enqueue({n: x.data_ptr() for n, x in t.items()},
                             torch.cuda.current_stream().cuda_stream)
        return self.outputs(t)

    def as_peer(self):
        """Our kernels as a peer is called: fresh outputs, the inputs of its set."""
        def call(*inputs):
            t, given = dict(self.workspaces), iter(inputs)
            for b in self.bufs:
                if b['role'] == 'input': t[b['name']] = next(given)
                if b['role'] == 'output':
                    t[b['name']] = torch.empty(b['shape'], device=DEV, dtype=DT[b['dtype']])
            return self.launch(t)
        return call


def tensors(result): return result if isinstance(result, (tuple, list)) else [result]
def size(some): return sum(x.numel() * x.element_size() for x in some)


class Captured:
    """n calls in a CUDA graph, call i on buffer set i modulo their number.

    A call's outputs live until the next call on their set, as ours do: they are dropped before that
    call, so that the allocator can hand out the same memory. More bytes alive than that is an error.
    """
    def __init__(self, call, sets, n):
        self.n, self.keep = n, deque()

        def one(i):
            while len(self.keep) >= len(sets): self.keep.popleft()
            self.keep.append(tensors(call(sets[i % len(sets)])))

        def requested(what): return torch.cuda.memory_stats()[f'requested_bytes.all.{what}']
        s = torch.cuda.Stream()
        s.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(s):
            for i in range(3): one(i)
        torch.cuda.current_stream().wait_stream(s)
        torch.cuda.synchronize()
        self.keep.clear()
        self.graph = torch.cuda.CUDAGraph()
        before = requested('current')
        torch.cuda.reset_peak_memory_stats()
        with torch.cuda.graph(self.graph, stream=s):
            one(0)
            outputs, first = size(self.keep[0]), requested('peak') - before
            for i in range(1, n): one(i)
        most = requested('peak') - before  # outputs of all sets, and what one call needs beside them
        fair = first + (len(sets) - 1) * outputs if first else 0
        if most > fair:
            raise RuntimeError(f'{most} bytes alive where {fair} are as many as ours: '
                               'more outputs than buffer sets')
        self.bytes = {'outputs': len(sets) * outputs, 'temporary': first - outputs if first else 0}
        self.replay_us()

    def replay_us(self):
        """Microseconds a call. A replay that is not timed runs ahead, so that the time from the
        host's call to the first kernel's start, when the device idles, is not shared out among the
        calls."""
        a, b = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        self.graph.replay(); a.record(); self.graph.replay(); b.record(); b.synchronize()
        return a.elapsed_time(b) * 1e3 / self.n


def compare(calls, sets, seconds):
    """Interleaved medians: ({name: microseconds}, {name: bytes}, {name: error}), and the clock and
    power meanwhile; calls: {name: call}, sets: {name: [args]}."""
    captured, failed = {}, {}
    for name, call in calls.items():
        try:
            us = Captured(call, sets[name], len(sets[name])).replay_us()
            k = max(len(sets[name]), min(2000, int(math.ceil(2000 / max(us, 1)))))
            k = (k + len(sets[name]) - 1) // len(sets[name]) * len(sets[name])
            captured[name] = Captured(call, sets[name], k)
        except Exception as e:
            if name == 'ours': raise
            failed[name] = repr(e)[:300]
    out, t0 = {k: [] for k in captured}, time.time()
    with sensors().watch() as state:
        while time.time() - t0 < seconds or len(next(iter(out.values()))) < 7:
            for name, c in captured.items(): out[name].append(c.replay_us())
    return ({k: st.median(v) for k, v in out.items()}, {k: c.bytes for k, c in captured.items()},
            failed, state)


@functools.cache
def sensors():
    """Of PyTorch's device, which the management library may number otherwise."""
    device, bus_id = ctypes.c_int(), ctypes.create_string_buffer(32)
    cuda = ctypes.CDLL('libcuda.so.1')
    cuda.cuDeviceGet(ctypes.byref(device), torch.cuda.current_device())
    cuda.cuDeviceGetPCIBusId(bus_id, len(bus_id), device)
    found = Sensors(bus_id.value.decode())
    if found.why: print(f'no clock and no watts: {found.why}')
    return found


def compiled(f, inputs, mode):
    """torch.compile's version of f for these shapes alone, run once."""
    torch._dynamo.reset()  # else it may be one more dynamic shape of an earlier case
    torch._dynamo.utils.counters.clear()
    c = torch.compile(f, mode=mode, dynamic=False)
    c(*inputs)
    torch.cuda.synchronize()
    return c


def graphs_compiled():
    return torch._dynamo.utils.counters['stats']['unique_graphs']


def errors_of(refs, outs, dt):
    """The worst of all outputs: ||got - ref|| / ||ref||, and that of an element. NaN is infinite."""
    worst = worst_max = 0.0
    for ref, out in zip(refs, outs, strict=True):
        d = out.double().reshape(ref.shape) - ref
        err = (d.norm() / ref.norm()).item()
        own = HALF_ULP.get(dt, 0) * ref.abs()
        big = ((d.abs() - own).max() / ref.square().mean().sqrt()).item()
        worst = max(worst, err if err == err else math.inf)
        worst_max = max(worst_max, big if big == big else math.inf)
    return worst, worst_max


def case(d, args):
    o = Ours(d)
    op, s, dt = o.m['op'], o.m.get('shape', {}), o.m.get('dtype', 'float32')
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = dt == 'tf32'
    f = args.eager(op, s) or eager(op, s)
    worst = worst_max = eager_worst = 0.0
    for _ in range(2):
        t = o.make(); o.launch(t); torch.cuda.synchronize()
        refs = tensors(f(*[x.double() if x.is_floating_point() else x for x in o.inputs(t)]))
        err, big = errors_of(refs, o.outputs(t), dt)
        worst, worst_max = max(worst, err), max(worst_max, big)
        # Of the same inputs: what the definition's own roundings make, where stages are narrow.
        eager_worst = max(eager_worst, errors_of(refs, tensors(f(*o.inputs(t))), dt)[0])
    ok = worst <= TOL[dt] and worst_max <= TOL_MAX[dt]
    t = o.make()
    per = size(o.inputs(t) + o.outputs(t))
    l2 = torch.cuda.get_device_properties(0).L2_cache_size
    rot = max(2, min(512, int(2.5 * l2 // max(per, 1)) + 1))
    peers, failed = {'eager': f}, {}
    if args.self_test: peers = {'ours as a peer': o.as_peer()}
    elif args.inductor:
        try: peers['inductor'] = compiled(f, o.inputs(t), args.inductor_mode)
        except Exception as e: failed['inductor'] = repr(e)[:300]
    row = {'op': op, 'shape': s, 'dtype': dt, 'rel_err': worst, 'max_err': worst_max, 'ok': ok,
           'eager_rel_err': eager_worst}
    for policy, count in (('warm', 1), ('cold', rot)):
        ts = [o.make() for _ in range(count)]
        calls, sets = {'ours': lambda x: o.launch(x)}, {'ours': ts}
        for name, p in peers.items():
            calls[name] = (lambda p: lambda x: p(*x))(p)
            sets[name] = [o.inputs(x) for x in ts]
        us, alive, errors, state = compare(calls, sets, args.seconds)
        best = min((v, k) for k, v in us.items() if k != 'ours')
        row[policy] = {'ours_us': round(us['ours'], 3), 'peer_us': round(best[0], 3),
                       'peer': best[1], 'ratio': round(best[0] / us['ours'], 3),
                       'peers': {k: round(v, 3) for k, v in us.items() if k != 'ours'},
                       'failed': failed | errors, 'sets': count, 'set_bytes': per,
                       'input_bytes': sum(size(o.inputs(x)) for x in ts),
                       'output_bytes': {k: v['outputs'] for k, v in alive.items()},
                       'temporary_bytes': {k: v['temporary'] for k, v in alive.items()},
                       **state}
        if len(set(row[policy]['output_bytes'].values())) != 1:
            raise RuntimeError(f"sides have different outputs: {row[policy]['output_bytes']}")
        words = per // 8  # a device copy that reads and writes the same number of bytes in all
        cp = [(torch.empty(words, device=DEV), torch.empty(words, device=DEV))
              for _ in range(count)]
        copy, _, _, _ = compare({'ours': lambda x: x[1].copy_(x[0])}, {'ours': cp}, args.seconds / 4)
        row[policy]['copy_us'] = round(copy['ours'], 3)
        fl = flop(op, s, o.outputs(t)[0])
        if fl: row[policy]['tflops'] = round(fl / us['ours'] / 1e6, 2)
        row[policy]['GBs'] = round(per / us['ours'] / 1e3, 1)
        del ts, sets, cp
        torch.cuda.empty_cache()
    if 'inductor' in peers:
        row['inductor_mode'] = args.inductor_mode
        row['inductor_graphs'] = graphs_compiled()
        if row['inductor_graphs'] != 1:
            raise RuntimeError(f"torch.compile made {row['inductor_graphs']} graphs of one case")
    if args.self_test and any(abs(row[p]['ratio'] - 1) > SELF for p in ('warm', 'cold')):
        row['ok'], row['error'] = False, 'our kernel is not as fast as itself'
    return row


def main():
    ap = argparse.ArgumentParser(description=__doc__,
                                 formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument('dirs', nargs='+'); ap.add_argument('--inductor', action='store_true')
    ap.add_argument('--inductor-mode', default='max-autotune-no-cudagraphs',
                    choices=('max-autotune-no-cudagraphs', 'default'))
    ap.add_argument('--json'); ap.add_argument('--seconds', type=float, default=0.4)
    ap.add_argument('--self-test', action='store_true')
    ap.add_argument('--definitions', help='a file of operators beside those known here')
    args = ap.parse_args()
    args.eager = runpy.run_path(args.definitions)['eager'] if args.definitions else lambda *_: None
    rows, bad = [], 0
    print(torch.cuda.get_device_name(), 'torch', torch.__version__,
          'cudnn', torch.backends.cudnn.version())
    for d in args.dirs:
        try: r = case(d, args)
        except Exception as e: r = {'dir': os.path.basename(d), 'ok': False, 'error': repr(e)[:300]}
        rows.append(r); bad += not r['ok']
        if 'warm' in r:
            w, c = r['warm'], r['cold']
            shape = ','.join(f'{k}={v}' for k, v in r['shape'].items())
            wrong = f"WRONG (eager: {r['eager_rel_err']:.1e})"
            verdict = 'ok ' if r['ok'] else r.get('error', wrong)
            state = f" {w['sm_mhz']} MHz {w.get('watts', '-')} W" if 'sm_mhz' in w else ''
            print(f"{r['op']:18s} {shape:48s} err {r['rel_err']:.1e} {verdict}"
                  f" copy {w['copy_us']:8.2f} warm {w['ours_us']:9.2f} vs {w['peer_us']:9.2f}"
                  f" {w['peer']:8s} x{w['ratio']:<6.2f} cold {c['ours_us']:9.2f} vs"
                  f" {c['peer_us']:9.2f} x{c['ratio']:<6.2f} {w.get('tflops', '')}{state}", flush=True)
        else: print(r, flush=True)
    good = [r for r in rows if r['ok'] and 'warm' in r]
    for p in ('warm', 'cold'):
        if good:
            mean = math.exp(sum(math.log(r[p]['ratio']) for r in good) / len(good))
            print(f"geomean {p}: x{mean:.3f}  worst x{min(r[p]['ratio'] for r in good):.3f}"
                  f"  ({len(good)} cases, {bad} wrong)")
    if args.json: json.dump(rows, open(args.json, 'w'), indent=1)
    return 1 if bad else 0


if __name__ == '__main__': sys.exit(main())
