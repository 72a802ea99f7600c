#!/bin/sh
# What a pipeline does with a repository of manifests, whichever runs it:
#
#   pipeline.sh plan DIR SET     what a merge would do, into plan.md: for a comment, or an artifact
#   pipeline.sh apply DIR SET    do it, wait, and write report.xml (JUnit), report.json and the logs of the runs
#
# A set is what was applied with its name: what is in none of the manifests any more is deleted.
set -eu

usage() {
    echo "usage: $0 plan|apply DIR SET" >&2
    exit 2
}

plan() {
    status=0
    hmz diff -f "$dir" --set "$set" --prune >plan.txt 2>plan.err || status=$?
    {
        case $status in
        0) echo "### hmz: nothing would change in \`$set\`" ;;
        1) echo "### hmz: what would change in \`$set\`" ;;
        *) echo "### hmz: this would be refused" ;;
        esac
        if [ -s plan.txt ] || [ -s plan.err ]; then
            echo
            # longer than any fence there may be in what is told
            echo '``````text'
            cat plan.txt plan.err
            echo '``````'
        fi
    } >plan.md
    cat plan.txt
    cat plan.err >&2
    # that something would change is no failure of the plan
    [ "$status" -le 1 ] || exit "$status"
}

apply() {
    status=0
    hmz apply -f "$dir" --set "$set" --prune --wait --timeout "${HMZ_TIMEOUT:-30m}" \
        --summary junit=report.xml --summary json=report.json || status=$?
    # folded under GitHub Actions and GitLab
    for run in $(hmz get runs -l "hmz/set=$set" -o name); do
        hmz logs "$run"
    done
    exit "$status"
}

[ $# -eq 3 ] || usage
dir=$2
set=$3
case $1 in
plan) plan ;;
apply) apply ;;
*) usage ;;
esac
