<?php
// A queue worker boots a small application per job. Each application makes its own
// log handler, which opens its file on the first record. The error registry keeps
// every handler it was ever given, so no destructor runs and no file is closed.
// A well-behaved job calls shutdown(), which closes the file.

$seconds = (float) (getenv('LB_SECONDS') ?: '20');
$rate = (float) (getenv('LB_RATE') ?: '4');
$work = getenv('LB_WORK');

final class StreamHandler
{
    private $stream = null;

    public function __construct(private string $path)
    {
    }

    public function write(string $record): void
    {
        if ($this->stream === null) {
            $this->stream = fopen($this->path, 'a');
        }
        fwrite($this->stream, $record . "\n");
    }

    public function close(): void
    {
        if ($this->stream !== null) {
            fclose($this->stream);
            $this->stream = null;
        }
    }
}

final class ErrorRegistry
{
    public static array $handlers = [];
}

final class Application
{
    public StreamHandler $log;

    public function __construct(string $dir)
    {
        $this->log = new StreamHandler($dir . '/worker.log');
        ErrorRegistry::$handlers[] = $this->log;
    }

    public function handle(string $job): void
    {
        $this->log->write('handled ' . $job);
    }

    public function shutdown(): void
    {
        $this->log->close();
        array_pop(ErrorRegistry::$handlers);
    }
}

function failing_job(string $dir, int $n): void
{
    $app = new Application($dir);
    $app->handle("job $n");
}

function good_job(string $dir, int $n): void
{
    $app = new Application($dir);
    $app->handle("job $n");
    $app->shutdown();
}

function churn(string $dir, int $n): void
{
    good_job($dir, $n);
    $pair = stream_socket_pair(STREAM_PF_UNIX, STREAM_SOCK_STREAM, 0);
    $temp = fopen($dir . '/part-' . $n % 5, 'w');
    fwrite($pair[0], 'x');
    fwrite($temp, 'part');
    usleep(10000);
    fclose($temp);
    fclose($pair[0]);
    fclose($pair[1]);
}

function now(): float
{
    return hrtime(true) / 1e9;
}

echo 'READY ', getmypid(), "\n";
$begin = now();
$i = 0;
while (now() - $begin < 1.0) {
    churn($work, $i++);
}
echo "PHASE run\n";
$begin = now();
$n = 0;
while ($n < $rate * $seconds) {
    failing_job($work, $n);
    $n++;
    while (now() < $begin + $n / $rate) {
        churn($work, $i++);
    }
}
echo "DONE leaked=$n\n";
usleep(1500000);
