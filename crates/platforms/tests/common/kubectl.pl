#!/usr/bin/perl
# A kubectl of a cluster that is not there, which runs pods by bubblewrap on this host. It has its
# objects in the directory that it lies in, and does what files there say: `refuse` is what it
# answers to everything, `refuse.VERB` to one verb, `status` what it says of pods instead of running
# them, `limits` what it limits pods to, `node.NAME` the object of a node. It asks before it deletes
# if there is `interactive`. `calls` has a line for each time that it was called, the verb.
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
    my $limits = slurp("$state/limits");
    $pod->{spec}{containers}[0]{resources}{limits} = decode_json($limits) if $limits;
    my $said = slurp("$state/status");
    $pod->{status} = $said ? decode_json($said) : {
        phase => 'Running',
        containerStatuses => [{ name => 'guest', containerID => 'containerd://none', state => { running => {} } }],
    };
    return encode_json($pod) . "\n";
}

# The sandbox's files of this host.
sub root {
    my @names = @_;
    return map { -l "/$_" ? ('--symlink', readlink("/$_"), "/$_") : -e "/$_" ? ('--ro-bind', "/$_", "/$_") : () } @names;
}

# Runs a command in a privileged pod, which has a volume and an /etc of its own. As on a node, the
# command outlives this client, and sees the end of its input. There is no first process that could
# set up control groups of version 2, so there are none.
sub enter {
    my ($pod, @command) = @_;
    my $container = $pod->{spec}{containers}[0];
    my $place = "$state/volume.$pod->{metadata}{name}";
    mkdir $_ for $place, "$place/volume", "$place/etc";
    my @variables = map { ('--setenv', $_->{name}, $_->{value}) } @{$container->{env}};
    my @groups = -e '/sys/fs/cgroup/cgroup.controllers' ? ('--tmpfs', '/sys/fs/cgroup') : ();
    system 'setsid', '--wait', 'bwrap', root(qw(usr bin sbin lib lib32 lib64)), '--proc', '/proc', '--dev', '/dev',
        '--bind', '/sys', '/sys', @groups, '--tmpfs', '/tmp', '--tmpfs', '/var/tmp', '--bind', "$place/etc", '/etc',
        '--bind', "$place/volume", $container->{volumeMounts}[0]{mountPath}, @variables, '--', @command;
    my $code = $? & 127 ? 128 + ($? & 127) : $? >> 8;
    print STDERR "command terminated with exit code $code\n" if $code;
    exit $code;
}

open my $calls, '>>', "$state/calls" or die $!;
print $calls "$verb\n";
close $calls;
for my $file ('refuse', "refuse.$verb") {
    if (my $answer = slurp("$state/$file")) { chomp $answer; refuse($answer) }
}
$| = 1;
if ($verb eq 'config') {
    print "fake\n";
} elsif ($verb eq 'create') {
    my $text = do { local $/; <STDIN> };
    my $asked = decode_json($text);
    if ($asked->{kind} eq 'List') {
        # This user may do all that is asked for.
        print encode_json({ %$_, status => { allowed => JSON::PP::true } }), "\n" for @{$asked->{items}};
        exit;
    }
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
} elsif ($verb eq 'get' && $ARGV[0] eq 'node') {
    print slurp("$state/node.$ARGV[1]") // refuse("Error from server (NotFound): nodes \"$ARGV[1]\" not found");
} elsif ($verb eq 'get' && $ARGV[0] eq 'nodes') {
    my ($key, $value) = $ARGV[1] eq '--selector' ? split /=/, $ARGV[2] : ();
    my @nodes = map { decode_json(slurp($_)) } sort glob "$state/node.*";
    @nodes = grep { ($_->{metadata}{labels}{$key} // '') eq $value } @nodes if defined $key;
    print encode_json({ kind => 'List', items => \@nodes }), "\n";
} elsif ($verb eq 'get') {
    refuse("Error from server (NotFound): pods \"$ARGV[1]\" not found") unless -e object(pod => $ARGV[1]);
    print described($ARGV[1]);
} elsif ($verb eq 'exec') {
    shift if $ARGV[0] eq '--stdin';
    my $name = shift;
    shift @ARGV until $ARGV[0] eq '--';
    my $pod = decode_json(slurp(object(pod => $name)) // refuse("Error from server (NotFound): pods \"$name\" not found"));
    my $said = slurp("$state/status");
    refuse('error: cannot exec into a container in a completed pod; current phase is Failed')
        if $said && (decode_json($said)->{phase} // '') eq 'Failed';
    enter($pod, @ARGV[1 .. $#ARGV]) if $pod->{spec}{containers}[0]{securityContext}{privileged};
    my $place = object(pod => $name) . '.running';
    if (my $running = slurp($place)) {
        exec 'nsenter', '--mount', '--root', '--wd', '--target', decode_json($running)->{'child-pid'}, @ARGV or die $!;
    }
    my @root = root(qw(usr bin sbin lib lib32 lib64 etc));
    # A limit of another kind than a cluster's, but one that holds.
    my $memory = $pod->{spec}{containers}[0]{resources}{limits}{memory} / 1024;
    $memory = 262144 if $memory < 262144;
    # bwrap writes there which process it has started.
    $^F = 99;
    open my $running, '>', $place or die $!;
    exec 'sh', '-c', 'ulimit -v $0; exec bwrap "$@"', $memory, @root, '--proc', '/proc', '--dev', '/dev', '--tmpfs', '/tmp', '--tmpfs', '/var/tmp', '--die-with-parent', '--info-fd', fileno $running,
        '--ro-bind', slurp("$state/probe"), '/.weighbridge/probe',
        '--ro-bind', slurp("$state/kernels"), '/.weighbridge/weigh-kernels', @ARGV;
    die $!;
} elsif ($verb eq 'delete') {
    # As for a user who prefers to be asked.
    if (-e "$state/interactive") {
        print "Do you want to continue? (y/N): ";
        if ((<STDIN> // '') ne "y\n") { print "deletion is cancelled\n"; exit }
    }
    for my $object (grep { m{/} } @ARGV) {
        my ($kind, $name) = split m{/}, $object;
        unlink map { object($kind, $name) . $_ } '', '.running';
        # A namespace takes its pods with it.
        unlink glob "$state/pod.$name.*" if $kind eq 'namespace';
        system 'rm', '-rf', "$state/volume.$name";
    }
} else {
    die "a fake has no $verb";
}
