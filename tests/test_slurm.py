"""The Slurm job of the docs: right syntax, and with stand-ins for Slurm's and Ray's commands the right calls."""

import os
import re
import shutil
import signal
import subprocess
import time
from pathlib import Path

import pytest

JOB = Path(__file__).parent.parent / "docs/cluster/slurm.sbatch"
BASH = shutil.which("bash")
pytestmark = pytest.mark.skipif(BASH is None, reason="needs bash")

# Each stand-in writes down its call. srun runs what it is given; ray start --block stays until it is ended.
STUBS = {
    "scontrol": 'echo "scontrol $*" >>"$CALLS"\nif [ "$1" = show ]; then printf "n1\\nn2\\nn3\\n"; fi\n',
    "srun": 'echo "srun $*" >>"$CALLS"\nwhile [ "${1#--}" != "$1" ]; do shift; done\nexec "$@"\n',
    "ray": 'echo "ray $*" >>"$CALLS"\nif [ "$1" = start ]; then exec sleep 60; fi\n',
    "saccade": 'echo "saccade $*" >>"$CALLS"\n'
    'trap "echo saved >>$CALLS; exit 130" TERM\nfor i in $(seq "$TENTHS"); do sleep 0.1; done\nexit "${CODE:-0}"\n',
}


@pytest.fixture
def cluster(tmp_path):
    for name, text in STUBS.items():
        path = tmp_path / "bin" / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(f"#!/bin/bash\n{text}")
        path.chmod(0o755)
    return {
        "PATH": f"{tmp_path / 'bin'}:{os.environ['PATH']}",
        "HOME": str(tmp_path),
        "CALLS": str(tmp_path / "calls"),
        "SLURM_JOB_ID": "4711",
        "SLURM_JOB_NODELIST": "n[1-3]",
        "SLURM_SUBMIT_DIR": str(tmp_path),
        "SLURM_CPUS_PER_TASK": "16",
        "SACCADE_RAY_WAIT": "0",
        "TENTHS": "3",
    }


def calls(env):
    return Path(env["CALLS"]).read_text().splitlines()


def test_its_syntax_is_right_and_its_options_are_slurms():
    assert subprocess.run([BASH, "-n", JOB], capture_output=True, text=True).stderr == ""
    options = re.findall(r"^#SBATCH (--[a-z-]+)(?:=(\S+))?$", JOB.read_text(), re.M)
    assert len(options) == JOB.read_text().count("\n#SBATCH ")
    assert {"--nodes", "--ntasks-per-node", "--cpus-per-task", "--time", "--requeue", "--signal"} <= {
        n for n, _ in options
    }
    assert JOB.read_text().index("#SBATCH --signal") < JOB.read_text().index("set -euo")  # Slurm stops at a command


def test_it_starts_ray_on_every_node_and_the_study_on_the_first(cluster):
    done = subprocess.run([BASH, JOB, "a_study", "--scale", "large"], env=cluster, capture_output=True, timeout=60)
    assert done.returncode == 0, done.stderr
    said = calls(cluster)
    assert any("--nodelist=n1 ray start --head" in c and "--port=24711" in c for c in said)
    assert any("--nodes=2" in c and "--nodelist=n2,n3 ray start --address=n1:24711" in c for c in said)
    lab = f"{cluster['SLURM_SUBMIT_DIR']}/lab"
    assert f"saccade run a_study --scale large --lab {lab} --on ray:n1:24711" in said
    assert not any("requeue" in c for c in said)


def test_a_failed_study_is_a_failed_job(cluster):
    done = subprocess.run([BASH, JOB, "a_study"], env={**cluster, "CODE": "2"}, capture_output=True, timeout=60)
    assert done.returncode == 2


def test_shortly_before_the_end_it_saves_and_queues_itself_again(cluster):
    job = subprocess.Popen([BASH, JOB, "a_study"], env={**cluster, "TENTHS": "300"}, stderr=subprocess.PIPE)
    deadline = time.time() + 30
    while not any(c.startswith("saccade run") for c in (calls(cluster) if Path(cluster["CALLS"]).exists() else ())):
        assert time.time() < deadline
        time.sleep(0.05)
    time.sleep(0.3)
    job.send_signal(signal.SIGTERM)
    job.communicate(timeout=30)
    said = calls(cluster)
    assert "saved" in said and said[-1] == "scontrol requeue 4711"


@pytest.mark.parametrize(("change", "says"), [({"SLURM_JOB_ID": ""}, "sbatch"), ({}, "usage")])
def test_outside_of_slurm_or_without_a_study_it_says_what_it_is_for(cluster, change, says):
    words = [] if not change else ["a_study"]
    done = subprocess.run([BASH, JOB, *words], env={**cluster, **change}, capture_output=True, text=True, timeout=30)
    assert done.returncode != 0 and says in done.stderr
