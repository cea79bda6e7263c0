"""Translation of long texts by several processes, on one machine or on several."""
