"""Machines for tests: namespaces of this one, on a network of their own, that fail as machines do. Needs root.

    lan.py       Lan: the network; makes machines, cuts and delays what goes between them, ends them all
    machine.py   Machine: processes, mounts, network, name and clock of its own; killed, frozen, rebooted
    init.py      the first process of a machine
    switch.py    a network switch that loses and delays frames

Nothing of it is left when a Lan is closed, nor when the process that made it is killed.
"""
