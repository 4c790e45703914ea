# A web terminal starts a shell on a pseudo-terminal per session. Ending a session
# kills the shell and reaps it, but the reader and the writer that PTY.spawn
# returned are never closed, and the session stays in the list of recent ones.
require "pty"

SECONDS = ENV.fetch("LB_SECONDS", "20").to_f
RATE = ENV.fetch("LB_RATE", "3").to_f
WORK = ENV.fetch("LB_WORK")
RECENT = []
$stdout.sync = true

def now
  Process.clock_gettime(Process::CLOCK_MONOTONIC)
end

class Terminal
  def start
    @reader, @writer, @pid = PTY.spawn("/bin/cat")
    @writer.puts("hello")
    @reader.gets
  end

  def stop
    Process.kill("KILL", @pid)
    Process.wait(@pid)
  end

  def release
    stop
    @reader.close
    @writer.close
  end
end

def web_session
  terminal = Terminal.new
  terminal.start
  terminal.stop
  RECENT << terminal
end

def health_check
  terminal = Terminal.new
  terminal.start
  terminal.release
end

def audit_log(name)
  Thread.new do
    loop do
      File.open(File.join(WORK, name), "a") do |f|
        f.puts("entry")
        sleep 0.02
      end
    end
  end
end

def pipes
  Thread.new do
    loop do
      r, w = IO.pipe
      w << "x"
      sleep 0.03
      r.close
      w.close
    end
  end
end

puts "READY #{Process.pid}"
audit_log("audit-1")
audit_log("audit-2")
pipes
warm = now + 1
while now < warm
  health_check
  sleep 0.1
end
puts "PHASE run"
start, n = now, 0
while n < RATE * SECONDS
  web_session
  health_check
  n += 1
  left = start + n / RATE - now
  sleep left if left > 0
end
puts "DONE leaked=#{2 * n}"
sleep 1.5
exit! 0
