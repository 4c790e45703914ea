<?php
// Opens one file per PERIOD for SECONDS and closes none: leak.php PERIOD SECONDS
[, $period, $seconds] = $argv;
$held = [];
$begin = microtime(true);
while (microtime(true) - $begin < $seconds) {
    $held[] = fopen('/etc/passwd', 'r'); // LEAK
    usleep((int) ($period * 1e6));
}
echo 'HELD ', count($held), "\n";
