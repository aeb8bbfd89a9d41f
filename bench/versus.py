#!/usr/bin/env python3
"""Compare exported Heddle kernels with PyTorch (cuBLAS, cuDNN) in one process, on one GPU.

    python3 versus.py [--inductor] [--json FILE] [--seconds S] EXPORT_DIR [EXPORT_DIR ...]

Every EXPORT_DIR is a folder of `heddle export` (a manifest.json and its binaries). For each,
the kernels are checked (norm and worst element, every output) against a float64 reference on fresh
random inputs with poisoned outputs, then timed against every peer, interleaved, under two policies:
warm (one set of buffers, back to back) and cold (buffer sets rotating over more than twice the L2
cache). Launches are captured in a CUDA graph. Prints a line per case: microseconds of ours and of
the best peer, and their ratio (above 1: we win). Exit code 1 if any kernel's output is wrong. Needs
torch and cupy. TF32 is off for float32 cases.
"""
import argparse, json, math, os, statistics as st, sys, time
from collections import deque
import torch, torch.nn.functional as F
import cupy

torch.backends.cuda.matmul.allow_tf32 = False
torch.backends.cudnn.allow_tf32 = False
torch.backends.cudnn.benchmark = True
DEV = 'cuda'
DT = {'float32': torch.float32, 'float16': torch.float16, 'bfloat16': torch.bfloat16}
TOL = {'float32': 2e-5, 'float16': 5e-3, 'bfloat16': 3e-2}        # ||got - ref|| / ||ref||
TOL_MAX = {'float32': 3e-4, 'float16': 3e-2, 'bfloat16': 2e-1}    # max |got - ref| / rms(ref)


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
    if op in ('conv2d', 'conv2d_bias_relu'): return 2 * n * s['ci'] * s['kh'] * s['kw']
    if op == 'depthwise_conv2d': return 2 * n * s['kh'] * s['kw']
    return None


class Ours:
    def __init__(self, d):
        self.m = json.load(open(os.path.join(d, 'manifest.json')))
        self.bufs = self.m['buffers']
        self.k = []
        for k in self.m['kernels']:
            mod = cupy.RawModule(path=os.path.join(d, k['binary']))
            f = mod.get_function(k['entry'])
            shared = k.get('shared_bytes', 0)
            if shared > 48 * 1024: f.max_dynamic_shared_size_bytes = shared
            self.k.append((f, tuple(k['grid']), tuple(k['block']), shared, k['args']))

    def tensor(self, b):
        t = torch.empty(b['shape'], device=DEV, dtype=DT[b['dtype']])
        if b['role'] == 'input': t.normal_()
        else: t.fill_(float('nan'))
        return t

    def make(self): return {b['name']: self.tensor(b) for b in self.bufs}
    def inputs(self, t): return [t[b['name']] for b in self.bufs if b['role'] == 'input']
    def outputs(self, t): return [t[b['name']] for b in self.bufs if b['role'] == 'output']

    def launch(self, t):
        with cupy.cuda.ExternalStream(torch.cuda.current_stream().cuda_stream):
            for f, g, b, sh, args in self.k:
                f(g, b, tuple(t[a].data_ptr() for a in args), shared_mem=sh)


def graph_of(call, sets, n):
    # A peer's fresh outputs: as many alive as there are buffer sets, like ours.
    keep = deque(maxlen=len(sets))
    s = torch.cuda.Stream()
    s.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(s):
        for i in range(3): keep.append(call(sets[i % len(sets)]))
    torch.cuda.current_stream().wait_stream(s)
    torch.cuda.synchronize()
    keep.clear()
    g = torch.cuda.CUDAGraph()
    with torch.cuda.graph(g):
        for i in range(n): keep.append(call(sets[i % len(sets)]))
    g.replay()
    torch.cuda.synchronize()
    return g, keep


def replay_us(g, n):
    a, b = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    a.record(); g.replay(); b.record(); b.synchronize()
    return a.elapsed_time(b) * 1e3 / n


def compare(calls, sets, seconds):
    """Interleaved medians: {name: microseconds}; calls: {name: call}, sets: {name: [args]}."""
    gs, n = {}, {}
    for name, call in calls.items():
        g, keep = graph_of(call, sets[name], len(sets[name]))
        us = replay_us(g, len(sets[name]))
        k = max(len(sets[name]), min(2000, int(math.ceil(2000 / max(us, 1)))))
        k = (k + len(sets[name]) - 1) // len(sets[name]) * len(sets[name])
        del g, keep
        gs[name], n[name] = graph_of(call, sets[name], k), k
    out, t0 = {k: [] for k in calls}, time.time()
    while time.time() - t0 < seconds or len(next(iter(out.values()))) < 7:
        for name in calls: out[name].append(replay_us(gs[name][0], n[name]))
    return {k: st.median(v) for k, v in out.items()}


def case(d, args):
    o = Ours(d)
    op, s, dt = o.m['op'], o.m.get('shape', {}), o.m.get('dtype', 'float32')
    f = eager(op, s)
    worst = 0.0
    worst_max = 0.0
    for _ in range(2):
        t = o.make(); o.launch(t); torch.cuda.synchronize()
        refs = f(*[x.double() for x in o.inputs(t)])
        if not isinstance(refs, tuple): refs = (refs,)
        for ref, out in zip(refs, o.outputs(t), strict=True):
            d = out.double().reshape(ref.shape) - ref
            err = (d.norm() / ref.norm()).item()
            big = (d.abs().max() / ref.square().mean().sqrt()).item()
            worst = max(worst, err if err == err else math.inf)
            worst_max = max(worst_max, big if big == big else math.inf)
    ok = worst <= TOL[dt] and worst_max <= TOL_MAX[dt]
    t = o.make()
    per = sum(x.numel() * x.element_size() for x in t.values())
    l2 = torch.cuda.get_device_properties(0).L2_cache_size
    rot = max(2, min(512, int(2.5 * l2 // max(per, 1)) + 1))
    peers = {'eager': f}
    if args.inductor:
        try:
            c = torch.compile(f, mode='max-autotune-no-cudagraphs')
            c(*o.inputs(t)); torch.cuda.synchronize()
            peers['inductor'] = c
        except Exception as e: print('inductor failed:', repr(e)[:120], file=sys.stderr)
    row = {'op': op, 'shape': s, 'dtype': dt, 'rel_err': worst, 'max_err': worst_max, 'ok': ok}
    for policy, count in (('warm', 1), ('cold', rot)):
        ts = [o.make() for _ in range(count)]
        calls = {'ours': lambda x: o.launch(x)}
        sets = {'ours': ts}
        for name, p in peers.items():
            calls[name] = (lambda p: lambda x: p(*x))(p)
            sets[name] = [o.inputs(x) for x in ts]
        us = compare(calls, sets, args.seconds)
        best = min((v, k) for k, v in us.items() if k != 'ours')
        row[policy] = {'ours_us': round(us['ours'], 3), 'peer_us': round(best[0], 3),
                       'peer': best[1], 'ratio': round(best[0] / us['ours'], 3)}
        words = per // 8  # a device copy that reads and writes the same number of bytes in all
        cp = [(torch.empty(words, device=DEV), torch.empty(words, device=DEV))
              for _ in range(count)]
        copy = compare({'copy': lambda x: x[1].copy_(x[0])}, {'copy': cp}, args.seconds / 4)
        row[policy]['copy_us'] = round(copy['copy'], 3)
        fl = flop(op, s, o.outputs(t)[0])
        if fl: row[policy]['tflops'] = round(fl / us['ours'] / 1e6, 2)
        row[policy]['GBs'] = round(per / us['ours'] / 1e3, 1)
        del ts, sets
        torch.cuda.empty_cache()
    return row


def main():
    ap = argparse.ArgumentParser(description=__doc__,
                                 formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument('dirs', nargs='+'); ap.add_argument('--inductor', action='store_true')
    ap.add_argument('--json'); ap.add_argument('--seconds', type=float, default=0.4)
    args = ap.parse_args()
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
            verdict = 'ok ' if r['ok'] else 'WRONG'
            print(f"{r['op']:18s} {shape:48s} err {r['rel_err']:.1e} {verdict}"
                  f" copy {w['copy_us']:8.2f} warm {w['ours_us']:9.2f} vs {w['peer_us']:9.2f}"
                  f" {w['peer']:8s} x{w['ratio']:<6.2f} cold {c['ours_us']:9.2f} vs"
                  f" {c['peer_us']:9.2f} x{c['ratio']:<6.2f} {w.get('tflops', '')}", flush=True)
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
