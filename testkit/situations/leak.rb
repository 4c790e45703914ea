# Opens one file per PERIOD for SECONDS and closes none: leak.rb PERIOD SECONDS
period, seconds = ARGV.map(&:to_f)
held = []
start = Process.clock_gettime(Process::CLOCK_MONOTONIC)
while Process.clock_gettime(Process::CLOCK_MONOTONIC) - start < seconds
  held << File.open('/etc/passwd') # LEAK
  sleep period
end
puts "HELD #{held.size}"
