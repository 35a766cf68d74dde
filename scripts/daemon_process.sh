# shellcheck shell=bash
# Functions for scripts that start the launcher in the background. To be sourced; $daemon is the launcher's process id, or
# empty where none runs.
daemon=""

# True when the daemon has ended within that many tenths of a second.
ended_within() {
  local tenth
  for ((tenth = 0; tenth < $1; ++tenth)); do
    kill -0 "$daemon" 2>/dev/null || return 0
    sleep 0.1
  done
  return 1
}

# end_daemon TENTHS: ends the daemon, kindly first and for so long: also after Ctrl-C nothing stays behind. The launcher
# passes the signals on.
end_daemon() {
  [[ -n $daemon ]] || return 0
  kill -TERM "$daemon" 2>/dev/null || true
  if ! ended_within "$1"; then
    kill -TERM "$daemon" 2>/dev/null || true
    if ! ended_within 100; then
      pkill -KILL -P "$daemon" 2>/dev/null || true
      kill -KILL "$daemon" 2>/dev/null || true
    fi
  fi
  wait "$daemon" 2>/dev/null || true
  daemon=""
}
