"""What workers print: into files, bounded, followed, streamed.

log_files.py      names, and the end of one; log_cap.py: keeps them within their limit
log_follow.py     reads them while they grow; inotify.py: without polling
stream.py         one live stream of all ranks; async_writer.py: for a reader who may be slow
"""
