"""opentsdb-python-metrics: decorators that send run times and results over HTTP."""

import sys
import time

from opentsdb_python_metrics import metric_wrappers

second = int(sys.argv[3])


@metric_wrappers.metric_timer_with_tags("clients.metrics.work", retval_functions={"value": lambda value: value}, job="a")
def work(value):
    return value


class Worker(metric_wrappers.SendMetricMixin):
    def run(self, step):
        self.send_metric("clients.metrics.step", step / 4, timestamp=second + step, job="b")


for step in range(20):
    Worker().run(step)
work(41)
time.sleep(1.1)
work(42)
metric_wrappers.tsdb_client.wait()
