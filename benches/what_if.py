"""Compares the forecasts of `plinth replay --what-if` with PyTorch trainings on a GPU.

    python3 benches/what_if.py --tool PLINTH --library LIBPLINTH [--python FOLDER] [--out FOLDER] [--json FILE]

Each model of torch_models.py is trained for a few eager steps of one shape on plinth's allocator (plinth.torch), in a
process of its own, which records its requests. The forecasts are made from that recording on the host device: of the
program as it is, with expandable_segments:False, under a limit, and with twice the batch. Then the program really runs so,
again in processes of their own. The table shows the peak of the memory that the allocator held, forecast and real.

Twice the batch is forecast by scale=2@transient, which doubles the blocks that do not live long. That is an approximation
by its user, not by the tool: gradients, for example, live as shortly and do not grow. Needs PyTorch and a GPU.
"""
import argparse
import json
import os
import random
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
STEPS = 4
MIB = 1 << 20
MODELS = {"gpt2": ("Text", [8, 1024]), "resnet50": ("Images", [96, 224])}
SEGMENTS = "expandable_segments:False"


def train(options):
    """Trains in this process, records the requests if a path is given, and prints what was held."""
    import plinth.torch
    import torch
    import torch_models
    import torch_steps

    plinth.torch.enable()
    from plinth import _native

    if options.limit:
        total = torch.cuda.mem_get_info()[1]
        torch.cuda.set_per_process_memory_fraction(options.limit / total)
    if options.record:
        _native.check(_native.lib.plinth_trace_start(options.record.encode()))
    kind, shape = MODELS[options.train]
    work = getattr(torch_models, kind)(False)
    work.model.cuda()
    work.loss = work.model.loss
    optimizer = work.optimizer(False)
    shape = (shape[0] * options.batch, *shape[1:])
    chance = random.Random(3)
    for _ in range(STEPS):
        batch = work.on_device(*(part.to("cuda") for part in work.on_host(chance, shape)))
        loss = torch_steps.compute(work, optimizer, batch)
        del loss, batch
    torch.cuda.synchronize()
    if options.record:
        _native.check(_native.lib.plinth_trace_stop())
    held, live = torch.cuda.max_memory_reserved(), torch.cuda.max_memory_allocated()
    print(json.dumps({"held": held, "live": live, "total": torch.cuda.mem_get_info()[1]}))


def run(options, model, record=None, limit=0, batch=1, settings=None):
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([options.python, HERE]), "PLINTH_LIBRARY": options.library}
    if settings is not None:
        environment["PLINTH_ALLOC_CONF"] = settings
    command = [sys.executable, __file__, "--train", model, "--limit", str(limit), "--batch", str(batch)]
    done = subprocess.run(command + (["--record", record] if record else []), env=environment, capture_output=True, text=True)
    if done.returncode != 0:
        return {"held": None, "live": None, "error": " ".join(done.stderr.strip().splitlines()[-1:])}
    return json.loads(done.stdout.strip().splitlines()[-1])


def forecast(options, trace, scenario, total):
    command = [options.tool, "replay", trace, "--json", "--rounds", "1", "--device", "host"]
    command += ["--what-if", f"{scenario} memory={total}B"]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode not in (0, 1):
        raise SystemExit(done.stderr)
    return json.loads(done.stdout)[1]


def compare(options, model, folder):
    trace = os.path.join(folder, model + ".trace")
    recorded = run(options, model, record=trace)
    if recorded["live"] is None:
        raise SystemExit(f"{model} does not run: {recorded['error']}")
    limit = int(recorded["live"] * 1.02)
    cases = [
        ("as recorded", "", {}),
        (SEGMENTS, "settings=" + SEGMENTS, {"settings": SEGMENTS}),
        ("limit of 1.02 times the peak", f"limit={limit}B", {"limit": limit}),
        ("twice the batch", "scale=2@transient", {"batch": 2}),
    ]
    for name, scenario, change in cases:
        expected = forecast(options, trace, scenario, recorded["total"])
        real = run(options, model, **change) if change else recorded
        yield {
            "model": model,
            "case": name,
            "forecast_live": expected["peak_live"],
            "forecast_held": expected["peak_held_first"] if expected["runs"] else None,
            "real_live": real["live"],
            "real_held": real["held"],
            "error": real.get("error"),
        }


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tool", default="target/tool/release/plinth")
    parser.add_argument("--library", default="target/release/libplinth.so")
    parser.add_argument("--python", default=os.path.join(HERE, "..", "python"))
    parser.add_argument("--out", help="keep the recordings in this folder")
    parser.add_argument("--json", help="write the results to this file")
    parser.add_argument("--train", choices=MODELS, help=argparse.SUPPRESS)
    parser.add_argument("--record", help=argparse.SUPPRESS)
    parser.add_argument("--limit", type=int, default=0, help=argparse.SUPPRESS)
    parser.add_argument("--batch", type=int, default=1, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.train:
        return train(options)
    options.library, options.tool = os.path.abspath(options.library), os.path.abspath(options.tool)
    rows = []
    with tempfile.TemporaryDirectory() as temporary:
        folder = options.out or temporary
        os.makedirs(folder, exist_ok=True)
        print("model     case                           live: forecast     real  held: forecast     real  forecast/real")
        for model in MODELS:
            for row in compare(options, model, folder):
                rows.append(row)
                texts = [
                    "-" if row[key] is None else f"{row[key] / MIB:.0f}"
                    for key in ("forecast_live", "real_live", "forecast_held", "real_held")
                ]
                both = row["forecast_held"] and row["real_held"]
                ratio = f"{row['forecast_held'] / row['real_held']:.4f}" if both else "-"
                print(f"{model:9} {row['case']:30} {texts[0]:>14} {texts[1]:>8} {texts[2]:>15} {texts[3]:>8} {ratio:>14}",
                      row["error"] or "", flush=True)
    print("MiB; the peaks of a process")
    if options.json:
        with open(options.json, "w", encoding="utf-8") as file:
            json.dump(rows, file, indent=1)


if __name__ == "__main__":
    main()
