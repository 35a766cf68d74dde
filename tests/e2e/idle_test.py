"""What an idle daemon costs, and how soon it gets to work."""

import statistics
import time
import unittest

from harness import BOS, DaemonTestCase
from processes import cpu_seconds

IDLE_S = 5.0
MAX_SHARE = 0.02  # of one core, a rank


class Idle(DaemonTestCase):
    DAEMON = {"ranks": 2}

    def test_an_idle_rank_takes_less_than_two_percent_of_a_core(self):
        # After work: what work has woken must have gone back to sleep.
        self.assertTrue(self.connect().call("encode", prompts=["a dog"] * 8, layers=[8])["ok"])
        before = [cpu_seconds(pid) for pid in self.daemon.pids]
        started = time.monotonic()
        time.sleep(IDLE_S)
        elapsed = time.monotonic() - started
        shares = [(cpu_seconds(pid) - cpu) / elapsed for pid, cpu in zip(self.daemon.pids, before)]
        print(f"idle: {', '.join(f'{share:.2%}' for share in shares)} of a core by rank")
        self.assertLess(max(shares), MAX_SHARE, shares)


class Latency(DaemonTestCase):
    DAEMON = {"ranks": 4}

    def test_one_token_is_encoded_and_delivered_to_idle_ranks(self):
        client, reader = self.connect(), self.connect_reader(3)
        times_ms = []
        for number in range(21):
            time.sleep(0.05)  # the ranks have gone back to sleep
            started = time.monotonic()
            reply = client.call("encode", prompts=[{"input_ids": [BOS]}], name=f"n{number}", layers=[8])
            lease = reader.acquire(reply["job"])
            times_ms.append((time.monotonic() - started) * 1000)
            self.assertTrue(lease["ok"], lease)
            reader.release(lease)
        print(f"one token, 4 ranks, idle before, from request to lease: median of 20 {statistics.median(times_ms[1:]):.2f} ms, "
              f"least {min(times_ms[1:]):.2f}, most {max(times_ms[1:]):.2f}")
        self.assertLess(statistics.median(times_ms[1:]), 1000)


if __name__ == "__main__":
    unittest.main()
