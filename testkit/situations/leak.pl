# Opens one file per PERIOD for SECONDS and closes none: leak.pl PERIOD SECONDS
use strict;
use warnings;
use Time::HiRes qw(sleep time);

my ($period, $seconds) = @ARGV;
my @held;
$| = 1;
my $begin = time;
while (time - $begin < $seconds) {
    open(my $file, '<', '/etc/passwd') or die;    # LEAK
    push @held, $file;
    sleep $period;
}
print 'HELD ', scalar(@held), "\n";
