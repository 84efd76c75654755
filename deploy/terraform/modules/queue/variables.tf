variable "project" {
  description = "The project's id."
  type        = string
}

variable "name" {
  description = "Name of the topic and of the subscription: WAKEQ_TOPIC and WAKEQ_SUBSCRIPTION."
  type        = string
  default     = "wakeq"
}

variable "regions" {
  description = "Regions where notifications may be stored; empty allows all."
  type        = list(string)
  default     = []
}

variable "publishers" {
  description = "Addresses of the service accounts that emit, run handlers, or serve the API, under keys of your choice."
  type        = map(string)
}

variable "subscribers" {
  description = "Addresses of the service accounts of workers in pull mode, under keys of your choice."
  type        = map(string)
  default     = {}
}

variable "viewers" {
  description = "Addresses of the service accounts that only read the subscription, for `wakeq doctor` in push mode, under keys of your choice."
  type        = map(string)
  default     = {}
}

variable "urgent" {
  description = "Whether urgent notifications have a second subscription (docs/urgent.md): that of the workers' `urgent_subscription`. A change makes the first one anew, and what it holds at that moment waits for the minute's pass."
  type        = bool
  default     = false
}

variable "broadcast" {
  description = "Whether every emitted event is also broadcast to listeners. The processes need WAKEQ_BROADCAST=1 too."
  type        = bool
  default     = false
}

variable "listeners" {
  description = "Addresses of the service accounts that listen to broadcasts, under keys of your choice: those that serve the API, and programs that subscribe."
  type        = map(string)
  default     = {}
}

variable "push" {
  description = "Push mode: the URL that Pub/Sub calls (…/v1/push), the service account and audience of its token, and the timeout of the longest handler."
  type = object({
    endpoint          = string
    account           = string
    audience          = string
    handler_timeout_s = number
  })
  default = null

  validation {
    condition     = var.push == null || try(startswith(var.push.endpoint, "https://"), false)
    error_message = "Pub/Sub sends tokens only to https:// addresses."
  }
}
