#!/usr/bin/env python3
# Runs examples/many_machines. SPDX-License-Identifier: MIT OR Apache-2.0
"""Runs the examples of ranks on many machines, as their environments start them: Open MPI's mpirun, Slurm's variables,
torchrun with PyTorch or with a replacement of its store.

Each example runs on this machine, and on two hosts that are made of it: two network namespaces with names and addresses
of their own, and a virtual cable (veth) between them. MPI and torch's store pass the unique id over the cable; the folder
for Slurm is one file system that both hosts have mounted. The library takes the namespaces for two machines, so the ranks
use NCCL: on a GPU the real one, on the host device c_tests/helpers/fake_nccl.c, which needs no network.

What the machine lacks is skipped, with the reason. The exit status is 77 if everything was skipped.
"""

import argparse
import contextlib
import os
import pathlib
import re
import socket
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
EXAMPLES = ROOT / "examples/many_machines"
STAND_IN = pathlib.Path(__file__).resolve().parent / "stand_in"
SKIPPED = 77
SECONDS = 120
RANKS = 3
ADDRESSES = "10.79.0.1", "10.79.0.2"


class Skip(Exception):
    """Why a test does not run."""


def has(program):
    return any(os.access(os.path.join(folder, program), os.X_OK) for folder in os.environ["PATH"].split(os.pathsep))


def need(*programs):
    missing = [program for program in programs if not has(program)]
    if missing:
        raise Skip(f"needs {' and '.join(missing)}")


def has_torch():
    code = "import torch; from torch.distributed import TCPStore; assert torch.distributed.is_available()"
    return subprocess.run([sys.executable, "-c", code], stderr=subprocess.DEVNULL).returncode == 0


def free_port():
    with socket.socket() as free:
        free.bind(("", 0))
        return free.getsockname()[1]


class Host:
    """A place where programs run: this machine itself, or one of two namespaces."""

    def __init__(self, address="127.0.0.1", interface="lo", enter=()):
        self.address, self.interface, self.enter = address, interface, list(enter)


def places(hosts):
    """The host and the local number of each rank: RANKS on one host, or one on each of several."""
    return [(hosts[0], local) for local in range(RANKS)] if len(hosts) == 1 else [(host, 0) for host in hosts]


@contextlib.contextmanager
def two_hosts():
    """Two hosts with a cable between them. They end with the processes that hold their namespaces."""
    if os.geteuid() != 0:
        raise Skip("network namespaces need root")
    need("ip", "unshare", "nsenter", "hostname")
    with contextlib.ExitStack() as stack:
        hosts = []
        for index, address in enumerate(ADDRESSES):
            # Its output ends once it has its namespaces. It ends with its input.
            holder = subprocess.Popen(["unshare", "--net", "--uts", "sh", "-c", f"hostname host-{index} && echo && cat"],
                                      stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
            stack.callback(holder.communicate)
            if not holder.stdout.readline():
                raise Skip(f"network namespaces are not permitted: {holder.stderr.read().decode().strip()}")
            hosts.append(Host(address, "cable", ["nsenter", f"--target={holder.pid}", "--net", "--uts"]))
        setup = [(hosts[0], f"ip link add cable type veth peer name cable netns {holder.pid}")]
        for host in hosts:
            setup += [(host, f"ip address add {host.address}/24 dev cable"), (host, "ip link set cable up"),
                      (host, "ip link set lo up")]
        for host, command in setup:
            done = subprocess.run(host.enter + command.split(), capture_output=True, text=True)
            if done.returncode != 0:
                raise Skip(f"virtual cables are not permitted: {done.stderr.strip()}")
        yield hosts


class Test:
    """The examples, built, and the environment in which they run."""

    def __init__(self, library, build):
        self.library, self.build = library, build
        self.device = os.environ.get("PLINTH_DEVICE", "host")
        self.environment = {**os.environ, "PLINTH_DEVICE": self.device, "NCCL_NVLS_ENABLE": "0"}
        if self.device == "host":
            # It calls itself, not the NCCL that PyTorch has loaded.
            fake = self.compile("gcc", ROOT / "c_tests/helpers/fake_nccl.c", "-shared", "-fPIC", "-Wl,-Bsymbolic")
            self.environment["PLINTH_NCCL_LIBRARY"] = str(fake)

    def compile(self, compiler, source, *flags):
        program = (self.build / source.stem).with_suffix(".so" if "-shared" in flags else "")
        subprocess.run([compiler, "-std=gnu11", "-O1", "-Wall", "-Wextra", "-Werror", *flags, "-I", str(ROOT / "include"),
                        str(source), "-o", str(program), "-L", str(self.library), f"-Wl,-rpath,{self.library}",
                        "-lplinth", "-lpthread"], check=True)
        return program

    def variables(self, hosts, **variables):
        """The environment of a program on one of several hosts."""
        result = {**self.environment, **{name: str(value) for name, value in variables.items()}}
        if len(hosts) > 1:
            # NCCL finds the cable, and no other way between the hosts.
            result.update(NCCL_SOCKET_IFNAME=hosts[0].interface, NCCL_IB_DISABLE="1", NCCL_SHM_DISABLE="1",
                          NCCL_P2P_DISABLE="1")
        return result

    def check(self, hosts, output):
        """Checks the lines that the ranks print."""
        ranks = len(places(hosts))
        lines = sorted(line for line in output.splitlines() if line.startswith("rank "))
        result = re.compile(rf"rank (\d+) of {ranks}, device \d+, engine (\w+): "
                            rf"the sum is {ranks * (ranks + 1) // 2}, as expected")
        found = [result.fullmatch(line) for line in lines]
        if None in found or [int(match[1]) for match in found] != list(range(ranks)):
            raise AssertionError(f"not all of {ranks} ranks have the right sum:\n{output}")
        if any((match[2] == "nccl") != (len(hosts) > 1) for match in found):
            raise AssertionError(f"the ranks use another engine:\n{output}")

    def run(self, hosts, processes, command):
        """Runs a command in several processes: for each its host and its variables. Checks the lines of all ranks."""
        with tempfile.TemporaryFile("w+") as output:
            started = [subprocess.Popen(host.enter + command, stdout=output, stderr=subprocess.STDOUT,
                                        env=self.variables(hosts, **variables)) for host, variables in processes]
            end = time.monotonic() + SECONDS
            try:
                for process in started:
                    process.wait(max(end - time.monotonic(), 0.1))
            except subprocess.TimeoutExpired:
                pass
            finally:
                for process in started:
                    process.kill()
                    process.wait()
            output.seek(0)
            text = output.read()
        statuses = [process.returncode for process in started]
        if any(statuses):
            raise AssertionError(f"exit statuses {statuses}:\n{text}")
        self.check(hosts, text)

    def mpi(self, hosts):
        need("mpicc", "mpirun")
        program = self.compile("mpicc", EXAMPLES / "mpi.c")
        command = ["mpirun", "--allow-run-as-root", "--oversubscribe"]
        if len(hosts) == 1:
            # Without a remote shell, which is not needed on one machine.
            command += ["--mca", "plm", "isolated", "-np", str(RANKS)]
        else:
            # mpirun starts its daemon on the second host by this in place of ssh.
            shell = self.build / "shell_on_host"
            shell.write_text("#!/bin/sh\nshift\nexec " + " ".join(hosts[1].enter) + ' sh -c "$*"\n')
            shell.chmod(0o755)
            command += ["--mca", "plm_rsh_agent", str(shell), "--mca", "oob_tcp_if_include", "cable", "--mca", "btl",
                        "self,tcp", "--mca", "btl_tcp_if_include", "cable",
                        "--host", f"{hosts[0].address}:1,{hosts[1].address}:1"]
        exported = sorted(name for name in self.variables(hosts) if name.startswith(("PLINTH_", "NCCL_")))
        command += [part for name in exported for part in ("-x", name)]
        self.run(hosts, [(hosts[0], {})], [*command, str(program)])

    def slurm(self, hosts):
        program = self.compile("gcc", EXAMPLES / "slurm.c")
        ranks = places(hosts)
        processes = [(host, {"SLURM_PROCID": rank, "SLURM_NTASKS": len(ranks), "SLURM_LOCALID": local, "SLURM_JOB_ID": 17,
                             "SLURM_STEP_ID": 0}) for rank, (host, local) in enumerate(ranks)]
        with tempfile.TemporaryDirectory() as folder:
            self.run(hosts, processes, [str(program), folder])

    def no_device(self, hosts):
        """Without a device the examples say so."""
        program = self.compile("gcc", EXAMPLES / "slurm.c")
        environment = {**self.environment, "CUDA_VISIBLE_DEVICES": "", "SLURM_PROCID": "0", "SLURM_NTASKS": "1", "SLURM_LOCALID": "0"}
        done = subprocess.run([program, "/nowhere"], env=environment, capture_output=True, text=True, timeout=SECONDS)
        if done.returncode != 1 or "shows this process no" not in done.stderr:
            raise AssertionError(f"exit status {done.returncode}: {done.stderr}")

    def torchrun(self, hosts):
        program = str(EXAMPLES / "torchrun.py")
        ranks, port = places(hosts), free_port()
        paths = [str(ROOT / "python"), *filter(None, [os.environ.get("PYTHONPATH")])]
        if has_torch():
            print("     with PyTorch and torchrun")
            processes = [(host, {"PET_NODE_RANK": index}) for index, host in enumerate(hosts)]
            command = ["-m", "torch.distributed.run", f"--nnodes={len(hosts)}", f"--nproc-per-node={len(ranks) // len(hosts)}",
                       f"--master-addr={hosts[0].address}", f"--master-port={port}"]
        else:
            print("     with a replacement of PyTorch's store, because PyTorch cannot be imported")
            paths.insert(0, str(STAND_IN))
            processes = [(host, {"RANK": rank, "WORLD_SIZE": len(ranks), "LOCAL_RANK": local, "MASTER_ADDR": hosts[0].address,
                                 "MASTER_PORT": port}) for rank, (host, local) in enumerate(ranks)]
            command = []
        for _, variables in processes:
            variables.update(PLINTH_LIBRARY=self.library / "libplinth.so", PYTHONPATH=os.pathsep.join(paths))
        self.run(hosts, processes, [sys.executable, *command, program])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--library", type=pathlib.Path, required=True, help="the folder of libplinth.so")
    parser.add_argument("--build", type=pathlib.Path, required=True, help="folder for the programs")
    arguments = parser.parse_args()
    arguments.build.mkdir(parents=True, exist_ok=True)
    test = Test(arguments.library.resolve(), arguments.build.resolve())
    outcomes = []
    for where, make_hosts in ("one machine", lambda: contextlib.nullcontext([Host()])), ("two hosts", two_hosts):
        for name in ["mpi", "slurm", "torchrun", *(["no_device"] if where == "one machine" else [])]:
            start = time.monotonic()
            try:
                with make_hosts() as hosts:
                    getattr(test, name)(hosts)
                outcomes.append("passed")
                print(f"ok   {name} on {where} ({time.monotonic() - start:.1f} s)", flush=True)
            except Skip as reason:
                outcomes.append("skipped")
                print(f"skip {name} on {where}: {reason}", flush=True)
            except (AssertionError, subprocess.SubprocessError) as error:
                outcomes.append("failed")
                print(f"FAIL {name} on {where}: {error}", flush=True)
    print(", ".join(f"{outcomes.count(outcome)} {outcome}" for outcome in ("passed", "skipped", "failed")))
    if "failed" in outcomes:
        return 1
    return SKIPPED if "passed" not in outcomes else 0


if __name__ == "__main__":
    sys.exit(main())
