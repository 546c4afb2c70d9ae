#!/usr/bin/env bash
# A cluster of one node on this machine, for tests/slurm/sweep.py: munged, slurmctld, slurmd; nothing of it outlives `down`.
#   tests/slurm/node.sh up DIR      starts it, for clients with SLURM_CONF=DIR/slurm.conf; status 3 where it cannot be had
#   tests/slurm/node.sh down DIR
# Needs root. SLURM is installed by apt if it is not there.
set -euo pipefail
PATH=$PATH:/usr/sbin:/sbin # where daemons are, and runuser
DIR=$2
NAME=$(uname -n | cut -d. -f1)

down() {
    for daemon in slurmd slurmctld munged; do
        [ -s "$DIR/$daemon.pid" ] || continue
        pid=$(cat "$DIR/$daemon.pid")
        kill "$pid" 2>/dev/null || true
        for _ in $(seq 50); do kill -0 "$pid" 2>/dev/null || break; sleep 0.1; done # it still writes its state
    done
}

installed() { command -v slurmctld slurmd munged sbatch >/dev/null; }

up() {
    mkdir -p "$DIR"
    [ "$(id -u)" = 0 ] || { echo "no SLURM here: it takes root"; exit 3; }
    if ! installed; then
        command -v apt-get >/dev/null || { echo "no SLURM here, and no apt-get to install it"; exit 3; }
        export DEBIAN_FRONTEND=noninteractive
        soon=(-o Acquire::http::Timeout=20 -o Acquire::Retries=1) # without a network it says so at once
        (apt-get "${soon[@]}" update && apt-get "${soon[@]}" install -y --no-install-recommends slurm-wlm munge) \
            >"$DIR/apt.log" 2>&1 || { echo "no SLURM here: $(grep -m 1 '^E:' "$DIR/apt.log")"; exit 3; }
    fi
    # Munge lets the daemons trust each other. It runs as its own user and insists that nobody else can write its files.
    install -d -o munge -g munge -m 755 "$DIR/munge"
    head -c 1024 /dev/urandom >"$DIR/munge/key"
    chown munge: "$DIR/munge/key"
    chmod 400 "$DIR/munge/key"
    runuser -u munge -- /usr/sbin/munged --force --key-file "$DIR/munge/key" --socket "$DIR/munge/socket" \
        --pid-file "$DIR/munge/pid" --log-file "$DIR/munge/log" --seed-file "$DIR/munge/seed"
    cp "$DIR/munge/pid" "$DIR/munged.pid"
    mkdir -p "$DIR/state" "$DIR/spool"
    # No cgroups and no accounting: they ask for more than a container has. Five seconds from SIGTERM to SIGKILL.
    # A free port range of its own, so that a SLURM that is here already is left alone.
    cat >"$DIR/slurm.conf" <<CONF
ClusterName=timescales
SlurmctldHost=$NAME(127.0.0.1)
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket=$DIR/munge/socket
SlurmctldPort=26817
SlurmdPort=26818
SlurmctldPidFile=$DIR/slurmctld.pid
SlurmdPidFile=$DIR/slurmd.pid
SlurmctldLogFile=$DIR/slurmctld.log
SlurmdLogFile=$DIR/slurmd.log
StateSaveLocation=$DIR/state
SlurmdSpoolDir=$DIR/spool
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
KillWait=5
SchedulerParameters=sched_interval=2,bf_interval=2,batch_sched_delay=1
NodeName=$NAME NodeAddr=127.0.0.1 CPUs=$(getconf _NPROCESSORS_ONLN) State=UNKNOWN
PartitionName=all Nodes=$NAME Default=YES State=UP
CONF
    export SLURM_CONF=$DIR/slurm.conf
    slurmctld
    slurmd
    for _ in $(seq 100); do
        [ "$(sinfo --noheader --format=%t 2>/dev/null)" = idle ] && return
        sleep 0.3
    done
    echo "SLURM did not come up: $DIR/slurmctld.log, $DIR/slurmd.log"
    exit 1
}

"$1"
