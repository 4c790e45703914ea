#!/usr/bin/perl
# A job runner makes a metrics client per job. The client keeps a callback that
# refers to the client itself, so its reference count never falls to zero and its
# UDP socket stays open. Jobs that call finish() close the socket explicitly.
use strict;
use warnings;
use IO::Socket::INET;
use Time::HiRes qw(time sleep);

my $seconds = $ENV{LB_SECONDS} || 20;
my $rate = $ENV{LB_RATE} || 5;
my $work = $ENV{LB_WORK};
$| = 1;

package Metrics {

    sub new {
        my ($class, $port) = @_;
        my $self = bless { sent => 0 }, $class;
        $self->{socket} = IO::Socket::INET->new(PeerAddr => "127.0.0.1", PeerPort => $port, Proto => "udp");
        $self->{on_sent} = sub { $self->{sent}++ };
        return $self;
    }

    sub count {
        my ($self, $name) = @_;
        $self->{socket}->send("$name:1|c");
        $self->{on_sent}->();
    }

    sub finish {
        my ($self) = @_;
        $self->{socket}->close;
        delete $self->{on_sent};
    }
}

sub nightly_job {
    my ($port) = @_;
    my $metrics = Metrics->new($port);
    $metrics->count("nightly");
}

sub hourly_job {
    my ($port) = @_;
    my $metrics = Metrics->new($port);
    $metrics->count("hourly");
    $metrics->finish;
}

sub churn {
    my ($port, $i) = @_;
    hourly_job($port);
    open(my $out, ">", "$work/out-" . $i % 6) or die "open: $!";
    print $out "row\n";
    pipe(my $r, my $w) or die "pipe: $!";
    sleep 0.015;
    close $_ for $out, $r, $w;
}

print "READY $$\n";
my $server = IO::Socket::INET->new(LocalAddr => "127.0.0.1", Proto => "udp", Blocking => 0)
    or die "listen: $!";
my $port = $server->sockport;
my $i = 0;

sub drain { 1 while defined $server->recv(my $data, 512); }

my $begin = time;
while (time - $begin < 1) { churn($port, $i++); drain(); }
print "PHASE run\n";
$begin = time;
my $n = 0;
while ($n < $rate * $seconds) {
    nightly_job($port);
    $n++;
    while (time < $begin + $n / $rate) { churn($port, $i++); drain(); }
}
print "DONE leaked=$n\n";
sleep 1.5;
