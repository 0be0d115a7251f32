#!/bin/sh
# A task of `weigh fleet` on the node that Slurm gave it. Its directory is that of the fleet.
umask 022
# Slurm's programs need a token where it is signed with one, and hand it to their tasks.
unset SLURM_JWT
at=$SLURM_ARRAY_TASK_ID
say() { echo "$2" > ".slurm/$at.$1.new" && mv ".slurm/$at.$1.new" ".slurm/$at.$1"; }
say node "$SLURMD_NODENAME" || exit 1
# The state of an ordinary user, with the lock of the host, is below HOME, which nodes often share.
if [ "$(id -u)" != 0 ] && [ -z "$WEIGH_STATE" ]; then
  WEIGH_STATE=/var/tmp/weighbridge-$(id -u)
  export WEIGH_STATE
fi
plan=fleet-plan.json
if [ -f ".slurm/$at.plan" ]; then plan=.slurm/$at.plan; fi
if [ -d "task-$at" ]; then set -- resume "./task-$at"; else set -- run --plan "$plan" --out "task-$at"; fi
run=
# Slurm signals this shell; the run ends after its trial.
trap '[ -z "$run" ] || kill -s TERM "$run"' TERM
./weigh "$@" < /dev/null &
run=$!
wait "$run"
code=$?
# A signal ends `wait` early.
while kill -0 "$run" 2> /dev/null; do
  wait "$run"
  code=$?
done
say exit "$code"
