"""Bytes that come before the workers, and go after them: code, mapped folders, results.

code.py             the job's code, unpacked once; code_source.py: brought here in a thread of its own
folders.py          mapped folders: folder_fetch.py, folder_send.py; folder_copy.py: one copy; folder_cache.py: all
results.py          sends results, by uploader.py; new_files.py: what was written beside the code
volume_prefetch.py  fills a shared volume once; parallel.py: some work for many items
"""
