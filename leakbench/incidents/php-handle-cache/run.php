<?php
// A partitioner appends rows to one file per customer and keeps the handles open in a
// cache of sixty, least recently used first out. It fills during the first third of the
// run and then opens and closes one handle for each new customer.

const LIMIT = 60;
$seconds = (float) (getenv('LB_SECONDS') ?: '20');
$work = getenv('LB_WORK');

final class HandleCache
{
    private array $handles = [];
    public int $opened = 0;

    public function __construct(private string $dir)
    {
    }

    public function handle(string $name)
    {
        if (isset($this->handles[$name])) {
            $handle = $this->handles[$name];
            unset($this->handles[$name]);
            return $this->handles[$name] = $handle;
        }
        if (count($this->handles) >= LIMIT) {
            $oldest = array_key_first($this->handles);
            fclose($this->handles[$oldest]);
            unset($this->handles[$oldest]);
        }
        $this->opened++;
        return $this->handles[$name] = fopen("$this->dir/$name.csv", 'a');
    }
}

function now(): float
{
    return hrtime(true) / 1e9;
}

function other_work(string $dir, int $i): void
{
    $f = fopen("$dir/index-" . $i % 3, 'w');
    fwrite($f, 'index');
    usleep(10000);
    fclose($f);
}

echo 'READY ', getmypid(), "\n";
$cache = new HandleCache($work);
$begin = now();
$i = 0;
while (now() - $begin < 1.0) {
    other_work($work, $i++);
}
echo "PHASE run\n";
$begin = now();
$step = 0.3 * $seconds / LIMIT;
$n = 0;
while (now() - $begin < $seconds) {
    fwrite($cache->handle("customer-$n"), "row\n");
    fwrite($cache->handle('customer-' . max(0, $n - 7)), "row\n");
    $n++;
    while (now() < min($begin + $n * $step, $begin + $seconds)) {
        other_work($work, $i++);
    }
}
echo "DONE leaked=0 opened=$cache->opened\n";
usleep(1000000);
