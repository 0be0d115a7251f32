#!/usr/bin/perl
# A kubectl of a cluster that is not there: one node, which runs pods by bubblewrap on this host. It
# has its objects in the directory that it lies in, and does what files there say: `refuse` is what
# it answers to everything, `status` what it says of pods instead of running them.
use strict;
use warnings;
use JSON::PP;
use Time::HiRes 'sleep';

my ($state) = $0 =~ m{^(.*)/};
my %option;
while (@ARGV && $ARGV[0] =~ /^--(namespace|context)$/) {
    my $name = $1;
    shift;
    $option{$name} = shift;
}
my $verb = shift;

sub slurp { my ($path) = @_; open my $file, '<', $path or return; local $/; return scalar <$file> }
sub object { my ($kind, $name) = @_; return "$state/$kind." . ($kind eq 'pod' ? "$option{namespace}." : '') . $name }
sub refuse { print STDERR shift, "\n"; exit 1 }

sub described {
    my ($name) = @_;
    my $pod = decode_json(slurp(object(pod => $name)));
    $pod->{spec}{nodeName} //= 'n1';
    my $said = slurp("$state/status");
    $pod->{status} = $said ? decode_json($said) : {
        phase => 'Running',
        containerStatuses => [{ containerID => 'containerd://none', state => { running => {} } }],
    };
    return encode_json($pod) . "\n";
}

if (my $answer = slurp("$state/refuse")) { chomp $answer; refuse($answer) }
$| = 1;
if ($verb eq 'config') {
    print "fake\n";
} elsif ($verb eq 'create') {
    my $text = do { local $/; <STDIN> };
    my $asked = decode_json($text);
    my $path = object(lc $asked->{kind}, $asked->{metadata}{name});
    refuse('Error from server (AlreadyExists): it is there') if -e $path;
    # Nobody reads a half of it.
    open my $file, '>', "$path.new" or die $!;
    print $file $text;
    close $file;
    rename "$path.new", $path or die $!;
} elsif ($verb eq 'get' && $ARGV[0] eq 'pods') {
    my ($name) = map { /^metadata\.name=(.*)/ ? $1 : () } @ARGV;
    sleep 0.01 until -e object(pod => $name);
    my $pod = decode_json(slurp(object(pod => $name)));
    $pod->{status} = { phase => 'Pending' };
    print encode_json($pod), "\n";
    print described($name);
    sleep 60;
} elsif ($verb eq 'get' && $ARGV[0] eq '--raw') {
    print "{}\n";
} elsif ($verb eq 'get') {
    refuse("Error from server (NotFound): pods \"$ARGV[1]\" not found") unless -e object(pod => $ARGV[1]);
    print described($ARGV[1]);
} elsif ($verb eq 'exec') {
    shift if $ARGV[0] eq '--stdin';
    my $name = shift;
    shift until $ARGV[0] eq '--';
    my $place = object(pod => $name) . '.running';
    if (my $running = slurp($place)) {
        exec 'nsenter', '--mount', '--root', '--wd', '--target', decode_json($running)->{'child-pid'}, @ARGV or die $!;
    }
    my @root = map { -l "/$_" ? ('--symlink', readlink("/$_"), "/$_") : -e "/$_" ? ('--ro-bind', "/$_", "/$_") : () }
        qw(usr bin sbin lib lib32 lib64 etc);
    # A limit of another kind than a cluster's, but one that holds.
    my $memory = decode_json(slurp(object(pod => $name)))->{spec}{containers}[0]{resources}{limits}{memory} / 1024;
    $memory = 262144 if $memory < 262144;
    # bwrap writes there which process it has started.
    $^F = 99;
    open my $running, '>', $place or die $!;
    exec 'sh', '-c', 'ulimit -v $0; exec bwrap "$@"', $memory, @root, '--proc', '/proc', '--dev', '/dev', '--tmpfs', '/tmp', '--tmpfs', '/var/tmp', '--die-with-parent', '--info-fd', fileno $running,
        '--ro-bind', slurp("$state/probe"), '/.weighbridge/probe',
        '--ro-bind', slurp("$state/kernels"), '/.weighbridge/weigh-kernels', @ARGV;
    die $!;
} elsif ($verb eq 'delete') {
    unlink map { object($ARGV[0], $ARGV[1]) . $_ } '', '.running';
} else {
    die "a fake has no $verb";
}
