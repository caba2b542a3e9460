-- Prints wrk's counts as one line of JSON for xtask.
done = function(summary, latency)
  local errors = summary.errors
  io.write(string.format(
    '{"requests":%d,"duration_us":%d,"min_us":%d,"median_us":%d,"p99_us":%d,"failed":%d}\n',
    summary.requests, summary.duration,
    latency.min, latency:percentile(50), latency:percentile(99),
    errors.connect + errors.read + errors.write + errors.status + errors.timeout))
end
