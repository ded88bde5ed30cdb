"""How the workers of a job come to be on a node: torchrun's way, MPI, plain tasks with roles.

launchers.py         what differs by launcher
mpi.py               what mpirun is told; mpi_node.py, mpi_round.py, mpi_rank.py: a node's part; mpirun_errors.py
plain.py, roles.py   tasks, and what each is told of the others; port_reservation.py: the ports they listen on
"""
